//go:build cgo

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

// field is a field of a protobuf message: v is the value of a varint field; b that of a message, string or bytes field.
type field struct {
	v uint64
	b []byte
}

// message has the fields of a protobuf message by number, in their order.
type message map[protowire.Number][]field

// last returns the field with a number, or a zero value.
func (m message) last(n protowire.Number) field {
	if list := m[n]; len(list) > 0 {
		return list[len(list)-1]
	}
	return field{}
}

// reader reads messages. It keeps the first error.
type reader struct{ err error }

func (r *reader) message(msg []byte) message {
	m := message{}
	for len(msg) > 0 {
		n, kind, tag := protowire.ConsumeTag(msg)
		size := protowire.ConsumeFieldValue(n, kind, msg[max(tag, 0):])
		if tag < 0 || size < 0 {
			r.err = errors.New("the model's signatures cannot be read: they are cut off or damaged")
			break
		}
		var f field
		switch kind {
		case protowire.VarintType:
			f.v, _ = protowire.ConsumeVarint(msg[tag:])
		case protowire.BytesType:
			f.b, _ = protowire.ConsumeBytes(msg[tag:])
		}
		m[n] = append(m[n], f)
		msg = msg[tag+size:]
	}
	return m
}

// entry returns the key and value of an entry of a protobuf map.
func (r *reader) entry(f field) (key string, value message) {
	m := r.message(f.b)
	return string(m.last(1).b), r.message(m.last(2).b)
}

// signatures parses the signatures of a MetaGraphDef, by name.
func signatures(meta []byte) (map[string]signatureDef, error) {
	r := &reader{}
	all := map[string]signatureDef{}
	for _, f := range r.message(meta)[5] {
		name, sides := r.entry(f)
		all[name] = signatureDef{ins: r.tensorInfos(sides[1]), outs: r.tensorInfos(sides[2])}
	}
	return all, r.err
}

func (r *reader) tensorInfos(list []field) map[string]tensorInfo {
	all := map[string]tensorInfo{}
	for _, f := range list {
		name, m := r.entry(f)
		t := tensorInfo{kind: "a tensor without a name", at: string(m.last(1).b), dtype: int(int32(m.last(2).v)), anyRank: len(m[3]) == 0} //nolint:gosec // an enumeration's number is of 32 bits
		switch {
		case len(m[5]) > 0:
			t.kind = "a composite tensor, such as a ragged one"
		case len(m[4]) > 0:
			t.kind = "a sparse tensor"
		}
		shape := r.message(m.last(3).b)
		for _, d := range shape[2] {
			t.shape = append(t.shape, max(int64(r.message(d.b).last(1).v), -1)) //nolint:gosec // two's complement on the wire
		}
		t.anyRank = t.anyRank || shape.last(3).v != 0
		all[name] = t
	}
	return all
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
