//go:build cgo

package tensorflow

import (
	"cmp"
	"math"
	"runtime"
	"slices"

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
