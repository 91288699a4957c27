//go:build wasip1

// Package tutti is the interface of Tutti's backend wasm, version 1, for Go. Copy it: docs/wasm.md describes the interface. A
// program has
//
//	var _ = tutti.Serve(initialize, execute)
//
//	func main() {} // not called
//
// and is compiled by
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o model.wasm .
package tutti

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Data types.
const (
	Int32 = 8
	Int64 = 9
	FP32  = 11
	Bytes = 13
)

// Codes of failures.
const (
	InvalidArgument = 3
	Internal        = 13
)

var model struct {
	initialize func(parameters []Tensor) error
	execute    func(inputs []Tensor) (Response, error)
}

// Serve makes the functions those of the module: initialize, which may be nil, receives the parameters of the model, and execute
// runs a batch. It returns true.
func Serve(initialize func(parameters []Tensor) error, execute func(inputs []Tensor) (Response, error)) bool {
	model.initialize, model.execute = initialize, execute
	return true
}

// Tensor is a tensor of a request or a response. Its fields are addresses and lengths in the memory of the module.
type Tensor struct {
	name, nameLength, DataType, rank, dims, data, dataLength, _ uint32
}

// memory returns n values at an address.
func memory[T any](address, n uint32) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(uintptr(address))), n)
}

// address returns the address of the first value, which must be kept until the server has read it.
func address[T any](list []T) uint32 { return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(list)))) }

// stringAddress is address for a string.
func stringAddress(s string) uint32 { return uint32(uintptr(unsafe.Pointer(unsafe.StringData(s)))) }

// Name returns the name.
func (t *Tensor) Name() string { return string(memory[byte](t.name, t.nameLength)) }

// Dims returns the dimensions, with the batch first where the model batches.
func (t *Tensor) Dims() []int64 { return memory[int64](t.dims, t.rank) }

// Numbers returns the elements of a tensor of a fixed size, for example float32 for FP32.
func Numbers[T any](t *Tensor) []T {
	var one T
	return memory[T](t.data, t.dataLength/uint32(unsafe.Sizeof(one)))
}

// Strings returns the elements of a BYTES tensor: each is a length of four bytes and that many bytes.
func Strings(t *Tensor) (list []string) {
	for rest := Numbers[byte](t); len(rest) >= 4; {
		n := binary.LittleEndian.Uint32(rest)
		list = append(list, string(rest[4:4+n]))
		rest = rest[4+n:]
	}
	return list
}

// Find returns the tensor of a name.
func Find(list []Tensor, name string) (*Tensor, error) {
	for i := range list {
		if list[i].Name() == name {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("expected an input '%s'", name)
}

// Output is an output. Data are the elements, as in a tensor of a request.
type Output struct {
	Name     string
	DataType uint32
	Dims     []int64
	Data     []byte
}

// NumbersOutput returns an output of elements of a fixed size.
func NumbersOutput[T any](name string, dataType uint32, dims []int64, list []T) Output {
	var one T
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(one)))
	return Output{name, dataType, dims, data}
}

// StringsOutput returns an output of type BYTES.
func StringsOutput(name string, dims []int64, list []string) Output {
	var data []byte
	for _, s := range list {
		data = binary.LittleEndian.AppendUint32(data, uint32(len(s)))
		data = append(data, s...)
	}
	return Output{name, Bytes, dims, data}
}

// Failure is an error with the row of the batch, or -1 for all, and a code.
type Failure struct {
	Row  int32
	Code uint32
	Text string
}

// Error returns the text.
func (f *Failure) Error() string { return f.Text }

// Response has the outputs of a batch, and the failures of single rows.
type Response struct {
	Outputs  []Output
	Failures []*Failure
}

type rawFailure struct {
	row                    int32
	code, text, textLength uint32
}

// What the server may read until the next call.
var (
	buffer   []uint64
	response Response
	outputs  []Tensor
	failures []rawFailure
	raw      [4]uint32
)

//go:wasmexport tutti_abi_version
func version() uint32 { return 1 }

//go:wasmexport tutti_buffer
func room(size uint32) uint32 {
	buffer = make([]uint64, size/8+1)
	return address(buffer)
}

//go:wasmexport tutti_initialize
func initialize(request, count uint32) uint32 {
	if model.initialize == nil {
		return respond(Response{}, nil)
	}
	return respond(Response{}, model.initialize(memory[Tensor](request, count)))
}

//go:wasmexport tutti_execute
func execute(request, count uint32) uint32 {
	return respond(model.execute(memory[Tensor](request, count)))
}

func respond(r Response, err error) uint32 {
	if err != nil {
		f, ok := err.(*Failure)
		if !ok {
			f = &Failure{-1, Internal, err.Error()}
		}
		r = Response{Failures: []*Failure{f}}
	}
	response, outputs, failures = r, outputs[:0], failures[:0]
	for i := range r.Outputs {
		o := &r.Outputs[i]
		outputs = append(outputs, Tensor{
			name: stringAddress(o.Name), nameLength: uint32(len(o.Name)), DataType: o.DataType,
			rank: uint32(len(o.Dims)), dims: address(o.Dims), data: address(o.Data), dataLength: uint32(len(o.Data)),
		})
	}
	for _, f := range r.Failures {
		failures = append(failures, rawFailure{f.Row, f.Code, stringAddress(f.Text), uint32(len(f.Text))})
	}
	raw = [4]uint32{address(outputs), uint32(len(outputs)), address(failures), uint32(len(failures))}
	return address(raw[:])
}
