// Package onnxfile reads ONNX model files without a runtime: the fields of their protocol buffer messages, and a summary of operators
// and weights. Files are mapped, so that weights are not read.
//
// The numbers of the fields are those of onnx.proto (https://github.com/onnx/onnx).
package onnxfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/internal/recovery"
)

// Errors of a file that cannot be parsed.
var (
	ErrTruncated = errors.New("it ends in the middle of a field: the file is truncated")
	ErrNotONNX   = errors.New("it is no ONNX model")
)

// Fields calls each with every field of a message: v is the value of a varint, b that of a string, of bytes or of a message. It stops
// at the first error, which is ErrTruncated or ErrNotONNX for a message that cannot be parsed.
func Fields(data []byte, each func(n protowire.Number, v uint64, b []byte) error) error {
	for len(data) > 0 {
		n, kind, used := protowire.ConsumeTag(data)
		if used < 0 {
			return broken(used)
		}
		data = data[used:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, used = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			b, used = protowire.ConsumeBytes(data)
		default:
			used = protowire.ConsumeFieldValue(n, kind, data)
		}
		if used < 0 {
			return broken(used)
		}
		data = data[used:]
		if err := each(n, v, b); err != nil {
			return err
		}
	}
	return nil
}

// broken returns the error of a field that cannot be parsed.
func broken(code int) error {
	if errors.Is(protowire.ParseError(code), io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return ErrNotONNX
}

// Map calls use with the content of a file, which is mapped and valid until use returns. A file that becomes shorter meanwhile is
// ErrTruncated.
func Map(path string, use func(data []byte) error) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("'%s' is no file (%s), expected an ONNX model", path, info.Mode())
	}
	if info.Size() == 0 {
		return fmt.Errorf("'%s' is empty, expected an ONNX model", path)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE) //nolint:gosec // a descriptor is small
	if err != nil {
		return fmt.Errorf("'%s' cannot be read: %w", path, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(data)) }()
	fault, err := recovery.Fault(func() error { return use(data) })
	if fault {
		return ErrTruncated
	}
	return err
}
