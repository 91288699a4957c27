//go:build cgo

package tensorflow

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Parameters of config.pbtxt, named as in Triton.
const (
	keyIntra      = "TF_NUM_INTRA_THREADS"
	keyInter      = "TF_NUM_INTER_THREADS"
	keyPerSession = "TF_USE_PER_SESSION_THREADS"
	keyTag        = "TF_GRAPH_TAG"
	keySignature  = "TF_SIGNATURE_DEF"
	keyInitOps    = "TF_INIT_OPS_FILE"
	keyShare      = "MAX_SESSION_SHARE_COUNT"
)

var keys = []string{keyShare, keyTag, keyInitOps, keyInter, keyIntra, keySignature, keyPerSession}

// settings are the parameters of config.pbtxt for one model.
type settings struct {
	intraThreads, interThreads int // 0 for the number of cores
	perSession                 bool
	tag, signature             string // an empty signature is the default one
	initOps                    string // file name, or ""
	share                      int    // most instances that share a session
	jit                        int    // level of XLA's just-in-time compiler, 0 for the default
}

// threads returns the number of threads of one execution.
func (s *settings) threads() int {
	return cmp.Or(s.intraThreads, runtime.GOMAXPROCS(0))
}

// boolean has the values of Triton's tensorflow backend for boolean parameters.
var boolean = bind.Words{True: []string{"1", "true", "on", "yes"}, False: []string{"0", "false", "off", "no"}, Expected: "0, 1, true, false, on or off"}

// modelSettings parses the settings of a model's configuration. It refuses features that the backend would otherwise ignore.
func modelSettings(cfg *modelconfig.ModelConfig) (settings, error) {
	s := settings{tag: "serve", share: 1, jit: int(cfg.GetOptimization().GetGraph().GetLevel())}
	number := func(to *int, least, most int) func(key, value string) error {
		return func(key, value string) (err error) {
			*to, err = bind.ParseInt(key, value, least, most, "a number")
			return err
		}
	}
	if err := boolean.Set(cfg, bind.Targets{
		keyIntra: number(&s.intraThreads, 0, bind.MaxThreads), keyInter: number(&s.interThreads, 0, bind.MaxThreads),
		keyShare: number(&s.share, 1, math.MaxInt32), keyPerSession: &s.perSession,
		keyTag: &s.tag, keySignature: &s.signature, keyInitOps: &s.initOps,
	}); err != nil {
		return s, err
	}
	if ops := cfg.GetModelOperations().GetOpLibraryFilename(); len(ops) > 0 {
		return s, status.Errorf(status.Unsupported, "custom operator library '%s' is not supported", ops[0])
	}
	acc := cfg.GetOptimization().GetExecutionAccelerators()
	for _, a := range slices.Concat(acc.GetCpuExecutionAccelerator(), acc.GetGpuExecutionAccelerator()) {
		return s, status.Errorf(status.Unsupported, "execution accelerator '%s' is not supported", a.GetName())
	}
	return s, nil
}

// proto returns the encoded ConfigProto of the session.
func (s *settings) proto() []byte {
	const (
		intraField, interField, softField, perSessionField, graphField = 2, 5, 7, 9, 10
		optimizerField, jitField                                       = 3, 5
	)
	number := func(b []byte, field protowire.Number, v int) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(int64(v))) //nolint:gosec // two's complement on the wire
	}
	message := func(b []byte, field protowire.Number, m []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
	}
	out := number(nil, intraField, s.threads())
	out = number(out, interField, cmp.Or(s.interThreads, runtime.GOMAXPROCS(0)))
	out = number(out, softField, 1) // allow_soft_placement: operations without a device kernel run on the CPU
	if s.perSession {
		out = number(out, perSessionField, 1)
	}
	if s.jit != 0 {
		out = message(out, graphField, message(nil, optimizerField, number(nil, jitField, min(max(s.jit, -1), 2))))
	}
	return out
}

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
