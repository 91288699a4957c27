//! The model simple_wasm: OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1.

mod tutti;

use tutti::{find, Failure, Output, Response, Tensor, FP32, INVALID_ARGUMENT};

fn initialize(_parameters: &[Tensor]) -> Result<(), Failure> {
    Ok(())
}

fn execute(inputs: &[Tensor]) -> Result<Response, Failure> {
    let (a, b) = (find(inputs, "INPUT0")?, find(inputs, "INPUT1")?);
    if a.dims() != b.dims() {
        let text = format!("expected inputs of one shape, got {:?} and {:?}", a.dims(), b.dims());
        return Err(Failure::new(INVALID_ARGUMENT, text));
    }
    let (x, y) = (a.numbers::<f32>(), b.numbers::<f32>());
    let sums: Vec<f32> = x.iter().zip(y).map(|(x, y)| x + y).collect();
    let differences: Vec<f32> = x.iter().zip(y).map(|(x, y)| x - y).collect();
    Ok(Response {
        outputs: vec![Output::numbers("OUTPUT0", FP32, a.dims(), &sums), Output::numbers("OUTPUT1", FP32, a.dims(), &differences)],
        failures: Vec::new(),
    })
}
