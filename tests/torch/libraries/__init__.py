"""What libraries of models do with torch when they are imported, as small files: those of torchvision and timm."""
