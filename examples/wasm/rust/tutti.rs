//! The interface of Tutti's backend `wasm`, version 1, for Rust. Copy this file beside yours: docs/wasm.md describes the interface.
//!
//! The crate that has this file as `mod tutti;` defines
//!
//! ```
//! fn initialize(parameters: &[Tensor]) -> Result<(), Failure>
//! fn execute(inputs: &[Tensor]) -> Result<Response, Failure>
//! ```

#![allow(dead_code)]

use std::cell::UnsafeCell;

pub const BOOL: u32 = 1;
pub const UINT8: u32 = 2;
pub const INT32: u32 = 8;
pub const INT64: u32 = 9;
pub const FP32: u32 = 11;
pub const FP64: u32 = 12;
pub const BYTES: u32 = 13;

pub const INVALID_ARGUMENT: u32 = 3;
pub const INTERNAL: u32 = 13;

/// A tensor of a request. Its fields are addresses and lengths in the memory of the module.
#[repr(C)]
pub struct Tensor {
    name: *const u8,
    name_length: u32,
    pub data_type: u32,
    rank: u32,
    dims: *const i64,
    data: *const u8,
    data_length: u32,
    zero: u32,
}

impl Tensor {
    pub fn name(&self) -> &str {
        let bytes = unsafe { std::slice::from_raw_parts(self.name, self.name_length as usize) };
        std::str::from_utf8(bytes).unwrap_or("")
    }

    /// The dimensions, with the batch first where the model batches.
    pub fn dims(&self) -> &[i64] {
        unsafe { std::slice::from_raw_parts(self.dims, self.rank as usize) }
    }

    /// The elements of a tensor of a fixed size, for example f32 for FP32.
    pub fn numbers<T>(&self) -> &[T] {
        let n = self.data_length as usize / std::mem::size_of::<T>();
        unsafe { std::slice::from_raw_parts(self.data as *const T, n) }
    }

    /// The elements of a BYTES tensor: each is a length of four bytes and that many bytes.
    pub fn strings(&self) -> Vec<&[u8]> {
        let mut rest: &[u8] = self.numbers();
        let mut list = Vec::new();
        while rest.len() >= 4 {
            let n = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            list.push(&rest[4..4 + n]);
            rest = &rest[4 + n..];
        }
        list
    }
}

/// Returns the tensor of a name.
pub fn find<'a>(list: &'a [Tensor], name: &str) -> Result<&'a Tensor, Failure> {
    list.iter().find(|t| t.name() == name).ok_or_else(|| Failure::new(INTERNAL, format!("expected an input '{}'", name)))
}

/// An output: its data are the elements, as in a tensor of a request.
pub struct Output {
    name: String,
    data_type: u32,
    dims: Vec<i64>,
    data: Vec<u8>,
}

impl Output {
    /// An output of elements of a fixed size.
    pub fn numbers<T: Copy>(name: &str, data_type: u32, dims: &[i64], elements: &[T]) -> Output {
        let bytes = unsafe { std::slice::from_raw_parts(elements.as_ptr() as *const u8, std::mem::size_of_val(elements)) };
        Output { name: name.to_string(), data_type, dims: dims.to_vec(), data: bytes.to_vec() }
    }

    /// An output of type BYTES.
    pub fn strings<S: AsRef<[u8]>>(name: &str, dims: &[i64], elements: &[S]) -> Output {
        let mut data = Vec::new();
        for e in elements {
            data.extend_from_slice(&(e.as_ref().len() as u32).to_le_bytes());
            data.extend_from_slice(e.as_ref());
        }
        Output { name: name.to_string(), data_type: BYTES, dims: dims.to_vec(), data }
    }
}

/// Why a request failed. The row is that of the batch, or -1 for all.
pub struct Failure {
    pub row: i32,
    pub code: u32,
    pub text: String,
}

impl Failure {
    pub fn new(code: u32, text: String) -> Failure {
        Failure { row: -1, code, text }
    }
}

/// The outputs of a batch, and the failures of single rows.
pub struct Response {
    pub outputs: Vec<Output>,
    pub failures: Vec<Failure>,
}

#[repr(C)]
struct RawFailure {
    row: i32,
    code: u32,
    text: *const u8,
    text_length: u32,
}

#[repr(C)]
struct RawResponse {
    outputs: *const Tensor,
    output_count: u32,
    failures: *const RawFailure,
    failure_count: u32,
}

/// What the server may read until the next call.
struct State {
    buffer: Vec<u64>,
    response: Response,
    outputs: Vec<Tensor>,
    failures: Vec<RawFailure>,
    raw: RawResponse,
}

struct Single(UnsafeCell<Option<State>>);

// A module has one thread.
unsafe impl Sync for Single {}

static STATE: Single = Single(UnsafeCell::new(None));

fn state() -> &'static mut State {
    let slot = unsafe { &mut *STATE.0.get() };
    slot.get_or_insert_with(|| State {
        buffer: Vec::new(),
        response: Response { outputs: Vec::new(), failures: Vec::new() },
        outputs: Vec::new(),
        failures: Vec::new(),
        raw: RawResponse { outputs: std::ptr::null(), output_count: 0, failures: std::ptr::null(), failure_count: 0 },
    })
}

#[no_mangle]
pub extern "C" fn tutti_abi_version() -> u32 {
    1
}

#[no_mangle]
pub extern "C" fn tutti_buffer(size: u32) -> *const u64 {
    let s = state();
    s.buffer = Vec::new(); // the old one is free before the new one is made
    s.buffer = vec![0; size as usize / 8 + 1];
    s.buffer.as_ptr()
}

#[no_mangle]
pub extern "C" fn tutti_initialize(request: *const Tensor, count: u32) -> *const u8 {
    let parameters = unsafe { std::slice::from_raw_parts(request, count as usize) };
    respond(crate::initialize(parameters).map(|_| Response { outputs: Vec::new(), failures: Vec::new() }))
}

#[no_mangle]
pub extern "C" fn tutti_execute(request: *const Tensor, count: u32) -> *const u8 {
    let inputs = unsafe { std::slice::from_raw_parts(request, count as usize) };
    respond(crate::execute(inputs))
}

fn respond(result: Result<Response, Failure>) -> *const u8 {
    let s = state();
    s.response = result.unwrap_or_else(|f| Response { outputs: Vec::new(), failures: vec![f] });
    s.outputs.clear();
    for o in &s.response.outputs {
        s.outputs.push(Tensor {
            name: o.name.as_ptr(),
            name_length: o.name.len() as u32,
            data_type: o.data_type,
            rank: o.dims.len() as u32,
            dims: o.dims.as_ptr(),
            data: o.data.as_ptr(),
            data_length: o.data.len() as u32,
            zero: 0,
        });
    }
    s.failures.clear();
    for f in &s.response.failures {
        s.failures.push(RawFailure { row: f.row, code: f.code, text: f.text.as_ptr(), text_length: f.text.len() as u32 });
    }
    s.raw = RawResponse {
        outputs: s.outputs.as_ptr(),
        output_count: s.outputs.len() as u32,
        failures: s.failures.as_ptr(),
        failure_count: s.failures.len() as u32,
    };
    &s.raw as *const RawResponse as *const u8
}
