module {
  oneflow.job @Graph_0(%arg0: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<1x3xf32>) {
    %output = "oneflow.input"(%arg0) {data_type = 2 : i32, device_name = ["@0:0"], device_tag = "cpu", hierarchy = [1], is_dynamic = false, nd_sbp = ["B"], op_name = "_Graph_0_input.0.0_2", output_lbns = ["_Graph_0_input.0.0_2/out"], scope_symbol_id = 12 : i64, shape = [1 : si64, 4 : si64]} : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %output_0 = "oneflow.variable"() {data_type = 2 : i32, device_name = ["@0:0"], device_tag = "cpu", hierarchy = [1], op_name = "module.weight", output_lbns = ["module.weight/out"], parallel = #sbp.parallel<[] -> [[#sbp.B]]>, scope_symbol_id = 23 : i64, shape = [4 : si64, 3 : si64]} : () -> tensor<4x3xf32>
    %0 = "oneflow.scalar_mul"(%output) {device_name = ["@0:0"], device_tag = "cpu", float_operand = 5.000000e-01 : f64, has_float_operand = true, has_int_operand = false, hierarchy = [1], int_operand = 0 : si64, op_name = "module-scalar_mul-0", scope_symbol_id = 16 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %1 = "oneflow.matmul"(%output, %output_0) {alpha = 1.000000e+00 : f64, device_name = ["@0:0"], device_tag = "cpu", hierarchy = [1], op_name = "module-matmul-2", scope_symbol_id = 16 : i64, transpose_a = false, transpose_b = false} : (tensor<1x4xf32>, tensor<4x3xf32>) -> tensor<1x3xf32>
    %2 = "oneflow.scalar_add"(%0) {device_name = ["@0:0"], device_tag = "cpu", float_operand = 0.000000e+00 : f64, has_float_operand = false, has_int_operand = true, hierarchy = [1], int_operand = 2 : si64, op_name = "module-scalar_add-1", scope_symbol_id = 16 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %3 = "oneflow.relu"(%1) {device_name = ["@0:0"], device_tag = "cpu", hierarchy = [1], op_name = "module-relu-3", scope_symbol_id = 16 : i64} : (tensor<1x3xf32>) -> tensor<1x3xf32>
    %output_1 = "oneflow.output"(%2) {data_type = 2 : i32, device_name = ["@0:0"], device_tag = "cpu", hierarchy = [1], is_dynamic = false, nd_sbp = ["B"], op_name = "_Graph_0_output.0.0.0_3", output_lbns = ["_Graph_0_output.0.0.0_3/out"], scope_symbol_id = 12 : i64, shape = [1 : si64, 4 : si64]} : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %output_2 = "oneflow.output"(%3) {data_type = 2 : i32, device_name = ["@0:0"], device_tag = "cpu", hierarchy = [1], is_dynamic = false, nd_sbp = ["B"], op_name = "_Graph_0_output.0.0.1_4", output_lbns = ["_Graph_0_output.0.0.1_4/out"], scope_symbol_id = 12 : i64, shape = [1 : si64, 3 : si64]} : (tensor<1x3xf32>) -> tensor<1x3xf32>
    oneflow.return %output_1, %output_2 : tensor<1x4xf32>, tensor<1x3xf32>
  }
}
