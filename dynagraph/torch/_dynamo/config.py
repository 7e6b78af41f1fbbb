"""``torch._dynamo.config``: settings that programs make; they are kept, and `dg.config` has dynagraph's own."""

suppress_errors = False
verbose = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
dynamic_shapes = True
automatic_dynamic_shapes = True
assume_static_by_default = True
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
optimize_ddp = True
allow_unspec_int_on_nn_module = False
inline_inbuilt_nn_modules = True
guard_nn_modules = True
compiled_autograd = False
