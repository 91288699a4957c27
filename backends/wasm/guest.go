package wasm

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// The structures of the interface, in the memory of a module. All numbers are little-endian; an address is a number of 32 bits.
//
//	tensor                          response                    failure
//	 0  address of the name          0  address of the outputs   0  row, or -1 for the whole batch
//	 4  length of the name           4  number of outputs        4  code
//	 8  data type                    8  address of the failures  8  address of the text
//	12  number of dimensions        12  number of failures      12  length of the text
//	16  address of the dimensions
//	20  address of the data
//	24  length of the data
//	28  zero
//
// A request is an array of tensors.
const (
	tensorSize   = 32
	responseSize = 16
	failureSize  = 16
	alignment    = 16 // of a request and of the data of its tensors
)

// maxText is the longest text of a failure, in bytes.
const maxText = 4 << 10

// entry is a tensor of a request. Dims and data are borrowed.
type entry struct {
	name  string
	dtype tensor.DType
	dims  []int64
	data  []byte
}

// aligned returns n rounded up to the alignment.
func aligned(n uint64) uint64 { return (n + alignment - 1) &^ (alignment - 1) }

// requestSize returns the number of bytes of a request: those of its head, and all.
func requestSize(list []entry) (head, total uint64) {
	head = uint64(len(list)) * tensorSize
	for i := range list {
		head += uint64(8*len(list[i].dims) + len(list[i].name))
	}
	total = aligned(head)
	for i := range list {
		total += aligned(uint64(len(list[i].data)))
	}
	return head, total
}

// appendHead appends the head of a request at an address: the tensors, their dimensions and their names. The data of the tensors
// follow it, each aligned.
func appendHead(out []byte, at uint32, list []entry) []byte {
	order := binary.LittleEndian
	dims := at + uint32(len(list)*tensorSize)
	names := dims
	for i := range list {
		names += uint32(8 * len(list[i].dims))
	}
	head, _ := requestSize(list)
	data := at + uint32(aligned(head))
	for i := range list {
		e := &list[i]
		for _, v := range [...]int{int(names), len(e.name), int(e.dtype), len(e.dims), int(dims), int(data), len(e.data), 0} {
			out = order.AppendUint32(out, uint32(v))
		}
		names += uint32(len(e.name))
		dims += uint32(8 * len(e.dims))
		data += uint32(aligned(uint64(len(e.data))))
	}
	for i := range list {
		for _, d := range list[i].dims {
			out = order.AppendUint64(out, uint64(d))
		}
	}
	for i := range list {
		out = append(out, list[i].name...)
	}
	return out
}

// memory is the memory of a module. Addresses in it come from the module and may have any value.
type memory []byte

// at returns n bytes at an address, borrowed.
func (m memory) at(addr uint32, n uint64) ([]byte, bool) {
	if uint64(addr) > uint64(len(m)) || n > uint64(len(m))-uint64(addr) {
		return nil, false
	}
	return m[addr : uint64(addr)+n : uint64(addr)+n], true
}

// outside returns the error for bytes that are not in the memory.
func (m memory) outside(what string, addr uint32, n uint64) error {
	return status.Errorf(status.Internal, "the module returned %s of %d bytes at address %d, expected it in its memory of %d bytes", what, n, addr, len(m))
}

// list returns an array of count items of a size.
func (m memory) list(what string, addr, count uint32, size uint64) ([]byte, error) {
	if count == 0 {
		return nil, nil
	}
	n := uint64(count) * size
	b, ok := m.at(addr, n)
	if !ok {
		return nil, m.outside(what, addr, n)
	}
	return b, nil
}

// response returns the outputs and the failures of the response at an address, as arrays of their structures.
func (m memory) response(addr uint32) (outputs, failures []byte, err error) {
	b, ok := m.at(addr, responseSize)
	if !ok {
		return nil, nil, m.outside("a response", addr, responseSize)
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	if outputs, err = m.list("outputs", word(0), word(1), tensorSize); err != nil {
		return nil, nil, err
	}
	failures, err = m.list("failures", word(2), word(3), failureSize)
	return outputs, failures, err
}

// result is an output of a module, in its memory.
type result struct {
	name  []byte
	dtype uint32
	shape tensor.Shape
	data  []byte
}

// result returns the output that a structure describes.
func (m memory) result(b []byte) (r result, err error) {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	var ok bool
	if r.name, ok = m.at(word(0), uint64(word(1))); !ok {
		return r, m.outside("the name of an output", word(0), uint64(word(1)))
	}
	r.dtype = word(2)
	rank := word(3)
	if rank > bind.MaxRank {
		return r, status.Errorf(status.Internal, "the module returned output '%s' of %d dimensions, expected at most %d", shown(r.name), rank, bind.MaxRank)
	}
	dims, ok := m.at(word(4), 8*uint64(rank))
	if !ok {
		return r, m.outside("the dimensions of output '"+shown(r.name)+"'", word(4), 8*uint64(rank))
	}
	var list [bind.MaxRank]int64
	for i := range rank {
		list[i] = int64(binary.LittleEndian.Uint64(dims[8*i:]))
	}
	r.shape = tensor.Of(list[:rank]...)
	if r.data, ok = m.at(word(5), uint64(word(6))); !ok {
		return r, m.outside("the data of output '"+shown(r.name)+"'", word(5), uint64(word(6)))
	}
	return r, nil
}

// failure returns the row and the error that a structure describes. The row -1 is the whole batch.
func (m memory) failure(b []byte) (row int32, failure, err error) {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	text, ok := m.at(word(2), uint64(word(3)))
	if !ok {
		return 0, nil, m.outside("the text of a failure", word(2), uint64(word(3)))
	}
	return int32(word(0)), status.Errorf(codeOf(word(1)), "%s", printable(text)), nil
}

// codeOf returns the code for a number of the interface, which are those of gRPC.
func codeOf(n uint32) status.Code {
	switch n {
	case 3:
		return status.InvalidArg
	case 5:
		return status.NotFound
	case 8:
		return status.ResourceExhausted
	case 12:
		return status.Unsupported
	case 14:
		return status.Unavailable
	}
	return status.Internal
}

// printable returns a text of a module as valid UTF-8 of at most maxText bytes.
func printable(text []byte) string {
	if len(text) == 0 {
		return "the module failed without a text"
	}
	return valid(text, maxText)
}

// shown returns a name of a module for an error.
func shown(name []byte) string { return valid(name, 64) }

// valid returns a text of a module as valid UTF-8 of at most that many bytes.
func valid(text []byte, most int) string {
	return cut(strings.ToValidUTF8(string(text[:min(len(text), most+utf8.UTFMax)]), "\uFFFD"), most)
}
