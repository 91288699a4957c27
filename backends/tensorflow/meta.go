package tensorflow

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/status"
)

// signatureDef is a named function of a SavedModel, with its inputs and outputs by name.
type signatureDef struct {
	ins, outs map[string]tensorInfo
}

// tensorInfo describes an input or output of a signature.
type tensorInfo struct {
	// at is the tensor's name, for example "add:0". It is empty if the value is not a dense tensor.
	at string
	// kind describes the value in errors if at is empty.
	kind  string
	dtype int
	shape []int64
	// anyRank is set when the model does not declare a number of dimensions.
	anyRank bool
}

var errTruncated = errors.New("the model's signatures cannot be read: they are cut off or damaged")

// fields calls use with each field of a protobuf message. v is the value of a varint field; b that of a message,
// string or bytes field.
func fields(msg []byte, use func(n protowire.Number, v uint64, b []byte) error) error {
	for len(msg) > 0 {
		n, kind, size := protowire.ConsumeTag(msg)
		if size < 0 {
			return errTruncated
		}
		msg = msg[size:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(msg)
		default:
			size = protowire.ConsumeFieldValue(n, kind, msg)
		}
		if size < 0 {
			return errTruncated
		}
		msg = msg[size:]
		if err := use(n, v, b); err != nil {
			return err
		}
	}
	return nil
}

// entry returns the key and value of an entry of a protobuf map.
func entry(msg []byte) (key string, value []byte, err error) {
	err = fields(msg, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case 1:
			key = string(b)
		case 2:
			value = b
		}
		return nil
	})
	return key, value, err
}

// signatures parses the signatures of a MetaGraphDef, by name.
func signatures(meta []byte) (map[string]signatureDef, error) {
	const signatureField = 5
	all := map[string]signatureDef{}
	err := fields(meta, func(n protowire.Number, _ uint64, b []byte) error {
		if n != signatureField {
			return nil
		}
		name, value, err := entry(b)
		if err != nil {
			return err
		}
		all[name], err = readSignature(value)
		return err
	})
	return all, err
}

func readSignature(msg []byte) (signatureDef, error) {
	s := signatureDef{ins: map[string]tensorInfo{}, outs: map[string]tensorInfo{}}
	err := fields(msg, func(n protowire.Number, _ uint64, b []byte) error {
		ports := s.ins
		switch n {
		case 1:
		case 2:
			ports = s.outs
		default:
			return nil
		}
		name, value, err := entry(b)
		if err != nil {
			return err
		}
		ports[name], err = readTensorInfo(value)
		return err
	})
	return s, err
}

func readTensorInfo(msg []byte) (tensorInfo, error) {
	t := tensorInfo{kind: "a tensor without a name", anyRank: true}
	err := fields(msg, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 1:
			t.at = string(b)
		case 2:
			t.dtype = int(int32(v)) //nolint:gosec // an enumeration's number is of 32 bits
		case 3:
			t.shape, t.anyRank, err = readShape(b)
		case 4:
			t.kind = "a sparse tensor"
		case 5:
			t.kind = "a composite tensor, such as a ragged one"
		}
		return err
	})
	return t, err
}

func readShape(msg []byte) (dims []int64, anyRank bool, err error) {
	err = fields(msg, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case 2:
			extent := int64(0)
			if err := fields(b, func(n protowire.Number, v uint64, _ []byte) error {
				if n == 1 {
					extent = max(int64(v), -1) //nolint:gosec // two's complement on the wire
				}
				return nil
			}); err != nil {
				return err
			}
			dims = append(dims, extent)
		case 3:
			anyRank = v != 0
		}
		return nil
	})
	return dims, anyRank, err
}

// Names of signatures: the default, and two that are not for serving.
const (
	servingDefault = "serving_default"
	initSignature  = "__saved_model_init_op"
	trainSignature = "__saved_model_train_op"
)

// choose returns the signature of that name. Without a name it returns the default signature, else the first by
// name.
func choose(all map[string]signatureDef, name string) (signatureDef, error) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return n == initSignature || n == trainSignature })
	if len(names) == 0 {
		return signatureDef{}, status.Errorf(status.InvalidArg, "the model has no signature to serve")
	}
	if name == "" {
		name = names[0]
		if slices.Contains(names, servingDefault) {
			name = servingDefault
		}
	}
	s, ok := all[name]
	if !ok {
		return s, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': the model's signatures are %s",
			name, keySignature, strings.Join(names, ", "))
	}
	return s, nil
}
