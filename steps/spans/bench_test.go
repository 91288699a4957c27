package spans_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/spans"
	"github.com/tutti-server/tutti/steps/steptest"
)

// The peers' inputs: 128 tokens of 4 characters, two of them a word, and a space after each word.
const (
	peerTokens = 128
	peerLabels = "O\nB-PER\nI-PER\nB-LOC\nI-LOC\nB-ORG\nI-ORG\nB-MISC\nI-MISC\n"
	peerText   = "abcdefgh "
)

// logits gives the i-th token and class a number from -2 to 2 by a rule that the scripts of bench/peers repeat.
func logits(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i*7919%1009)/252 - 2
	}
	return v
}

func peerCommon() []steptest.Value {
	offsets, words, special := make([]int64, 0, 2*peerTokens), make([]int64, 0, peerTokens), make([]int64, peerTokens)
	special[0], special[peerTokens-1] = 1, 1
	for i := range int64(peerTokens) {
		offsets = append(offsets, i/2*9+i%2*4, i/2*9+i%2*4+4)
		words = append(words, i/2)
	}
	n := int64(peerTokens)
	return []steptest.Value{
		steptest.I64([]int64{1, n, 2}, offsets...), steptest.I64([]int64{1, n}, special...),
		steptest.Text([]int64{1, 1}, strings.Repeat(peerText, peerTokens/2)),
		{},
		steptest.I64([]int64{1, n}, words...),
	}
}

func peer(b *testing.B, name string, s steps.Step, in []steptest.Value) {
	b.Helper()
	batch := newBatch(b, 1, in)
	steptest.Peer(b, name, 1, func() {
		if err := s.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkPeer(b *testing.B) {
	for _, strategy := range []string{"simple", "average"} {
		s := newStep(b, spans.NewTokenFactory(), map[string]string{"labels_file": "l", "aggregation": strategy}, map[string]string{"l": peerLabels})
		in := append([]steptest.Value{steptest.F32([]int64{1, peerTokens, 9}, logits(9*peerTokens)...)}, peerCommon()...)
		peer(b, "tokens "+strategy, s, in)
	}
	common, one := peerCommon(), []int64{1, peerTokens}
	sequences := make([]int64, peerTokens)
	for i := 8; i < peerTokens; i++ {
		sequences[i] = 1
	}
	in := append([]steptest.Value{steptest.F32(one, logits(peerTokens)...), steptest.F32(one, logits(2 * peerTokens)[peerTokens:]...)}, common...)
	s := newStep(b, spans.NewAnswerFactory(), map[string]string{"top_k": "3"}, nil)
	peer(b, "answers", s, append(in, steptest.I64(one, sequences...)))
}
