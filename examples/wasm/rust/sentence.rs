//! The model forecast_sentence: it puts the likeliest labels of a classifier into words.
//!
//! For each row it reads `labels` BYTES [n] and `probabilities` FP32 [n], the likeliest first, and writes `sentence` BYTES [1]: the
//! first label, or the first two with their shares when the first has less than the parameter `sure`, 0.9 by default.

mod tutti;

use std::sync::Mutex;

use tutti::{find, Failure, Output, Response, Tensor, FP32, INVALID_ARGUMENT};

static SURE: Mutex<f32> = Mutex::new(0.9);

fn initialize(parameters: &[Tensor]) -> Result<(), Failure> {
    for p in parameters {
        let value = String::from_utf8_lossy(p.strings()[0]).to_string();
        match (p.name(), value.parse()) {
            ("sure", Ok(share)) => *SURE.lock().unwrap() = share,
            (name, _) => return Err(Failure::new(INVALID_ARGUMENT, format!("parameter '{}' is '{}', expected 'sure' with a share", name, value))),
        }
    }
    Ok(())
}

fn percent(share: f32) -> u32 {
    (share * 100.0 + 0.5) as u32
}

fn execute(inputs: &[Tensor]) -> Result<Response, Failure> {
    let (labels, shares) = (find(inputs, "labels")?, find(inputs, "probabilities")?);
    if labels.dims() != shares.dims() || labels.dims().len() != 2 || shares.data_type != FP32 {
        return Err(Failure::new(INVALID_ARGUMENT, format!("expected a share for each label, got shapes {:?} and {:?}", labels.dims(), shares.dims())));
    }
    let (rows, width) = (labels.dims()[0] as usize, labels.dims()[1] as usize);
    if width < 2 {
        return Err(Failure::new(INVALID_ARGUMENT, format!("expected at least two labels, got {}", width)));
    }
    let sure = *SURE.lock().unwrap();
    let (names, values) = (labels.strings(), shares.numbers::<f32>());
    let mut sentences = Vec::new();
    let mut failures = Vec::new();
    for row in 0..rows {
        let (n, v) = (&names[row * width..], &values[row * width..]);
        let (first, second) = (String::from_utf8_lossy(n[0]), String::from_utf8_lossy(n[1]));
        if !(0.0..=1.0).contains(&v[0]) || !(0.0..=1.0).contains(&v[1]) {
            failures.push(Failure { row: row as i32, code: INVALID_ARGUMENT, text: "expected shares from 0 to 1".to_string() });
            sentences.push(String::new());
        } else if v[0] >= sure {
            sentences.push(first.to_string());
        } else {
            sentences.push(format!("{} ({} %) or {} ({} %)", first, percent(v[0]), second, percent(v[1])));
        }
    }
    Ok(Response { outputs: vec![Output::strings("sentence", &[rows as i64, 1], &sentences)], failures })
}
