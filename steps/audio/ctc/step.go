// Package ctc holds the step ctc_text, which decodes the output of a speech recogniser trained with CTC (connectionist temporal
// classification: A. Graves et al., 2006) to text: the best class of each window, or a beam search over texts.
package ctc

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	scoresName = "logits"
	lengthName = "length"
)

// The ways that scores are given.
const (
	asLogits = "logits"
	asLogs   = "log_probs"
	asProbs  = "probs"
)

// NewFactory declares the step ctc_text.
//
// Input logits is FP32 or FP16 [T,C]: a score for each of C tokens in each of T windows. With lengths there is one more input, length,
// INT64 [1]: the windows that count. Outputs are TEXT, BYTES [n_best], and SCORE, FP32 [n_best], the natural logarithm of the text's
// probability, best first. If there are fewer texts, TEXT ends with empty ones of score -Inf.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "ctc_text",
		Doc: "Decodes the output of a speech recogniser trained with CTC, such as Wav2Vec2. With beam_width 1 it takes the best token of each window, of equal " +
			"neighbours the first, without blanks: the text of Wav2Vec2CTCTokenizer.decode; SCORE is the sum of the logarithms of those tokens' probabilities. " +
			"A wider beam sums the probabilities of all sequences of tokens that give the same text, as pyctcdecode does without a language model, with the same " +
			"texts and scores. Tokens that begin with ▁ begin a word. A window with NaN or without a finite score fails the request.",
		Params: []steps.Param{
			{Key: "vocabulary_file", Doc: "JSON object of tokens and their indices, as vocab.json of Wav2Vec2, or text with one token per line, in the version folder or the model folder.", Required: true, Sample: "vocab.json"},
			{Key: "blank", Doc: "Token of the blank, or #N for the token with index N.", Default: "<pad>"},
			{Key: "word_delimiter", Doc: "Token between words, which becomes a space; empty for none.", Default: "|"},
			{Key: "special_tokens", Doc: "Tokens that are left out of the text, separated by spaces.", Default: "<s> </s> <unk>"},
			{Key: "scores", Doc: "Whether the input has logits, natural logarithms of probabilities, or probabilities.", Default: asLogits, Values: []string{asLogits, asLogs, asProbs}},
			{Key: "beam_width", Doc: "Texts that are kept in each window; 1 takes the best token of each window.", Default: "1"},
			{Key: "n_best", Doc: "Number of texts to return, at most beam_width.", Default: "1"},
			{Key: "token_min_logp", Doc: "For a beam: tokens whose logarithm is below this are skipped, except for the best of a window.", Default: "-5"},
			{Key: "beam_prune_logp", Doc: "For a beam: texts whose score is this much below the best are dropped; a negative number.", Default: "-10"},
			{Key: "lengths", Doc: "Adds the input length: how many windows count, for recordings that were filled up.", Default: "false", Values: []string{"true", "false"}},
		},
		Examples: []steps.Example{
			{
				Config: steps.ExampleConfig("max_batch_size: 8", "ctc_text", "vocabulary_file", "vocab.json"),
				Files:  map[string][]byte{"vocab.json": []byte(`{"<pad>": 0, "|": 1, "h": 2, "i": 3}`)},
				Request: `{"inputs": [{"name": "logits", "datatype": "FP32", "shape": [1, 5, 4],
    "data": [0,0,9,0, 0,0,9,0, 0,0,0,9, 0,9,0,0, 9,0,0,0]}]}`,
			},
			{
				Config: steps.ExampleConfig("", "ctc_text", "vocabulary_file", "tokens.txt", "blank", "-", "beam_width", "8", "n_best", "2", "scores", "probs"),
				Files:  map[string][]byte{"tokens.txt": []byte("-\na\nb\n")},
				Request: `{"inputs": [{"name": "logits", "datatype": "FP32", "shape": [2, 3],
    "data": [0.6,0.4,0, 0.6,0.4,0]}]}`,
			},
		},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	sig := &config.Signature{
		Inputs: []config.Port{s.FloatPort(scoresName, -1, -1)},
		Outputs: []config.Port{
			{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(int64(o.best))},
			{Name: "SCORE", DType: tensor.FP32, Dims: tensor.Of(int64(o.best))},
		},
	}
	if o.lengths {
		sig.Inputs = append(sig.Inputs, config.Port{Name: lengthName, DType: tensor.Int64, Dims: tensor.Of(1)})
	}
	return sig, nil
}

// options are the parameters that need no file.
type options struct {
	scores      string
	width, best int
	tokenLeast  float64
	beamLeast   float64
	lengths     bool
}

func parse(s *steps.Settings) (o options, err error) {
	r := steps.Reader{Settings: s}
	o = options{scores: s.Params["scores"], lengths: s.Params["lengths"] == "true", width: r.Int("beam_width", 1, 1<<14)}
	o.best = r.Int("n_best", 1, max(o.width, 1))
	o.tokenLeast, o.beamLeast = r.Float64("token_min_logp"), r.Float64("beam_prune_logp")
	if r.Err == nil && o.beamLeast > 0 {
		r.Err = s.Wrong("beam_prune_logp", "a number of at most 0")
	}
	return o, r.Err
}

// step is ctc_text.
type step struct {
	options
	vocabulary *vocabulary
	batched    bool
	workers    pool.Of[worker]
}

var _ steps.Step = (*step)(nil)

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	v, err := readVocabulary(s)
	if err != nil {
		return nil, err
	}
	return &step{options: o, vocabulary: v, batched: s.MaxBatch > 0}, nil
}

// worker is the scratch memory of one batch in progress.
type worker struct {
	floats []float32
	logs   []float64 // of one window, for a beam
	path   []int32
	search search
	text   []byte
	texts  []byte // of all rows, encoded
	scores []float32
}

// Run decodes each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	w.texts, w.scores = w.texts[:0], w.scores[:0]
	in := &b.In[0]
	windows, classes := int(in.Shape.Dim(in.Shape.Rank()-2)), int(in.Shape.Dim(in.Shape.Rank()-1))
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		found := len(w.scores)
		if err := s.row(ctx, w, b, row, windows, classes); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.Fail(row, err)
		}
		for len(w.scores) < found+s.best {
			w.texts, w.scores = tensor.AppendBytes(w.texts, ""), append(w.scores, float32(math.Inf(-1)))
		}
	}
	if err := steps.Write(b, 0, tensor.Bytes, steps.Shape(b, s.batched, int64(s.best)), w.texts); err != nil {
		return err
	}
	o := steps.Outputs{Batch: b}
	copy(steps.Alloc[float32](&o, 1, tensor.FP32, steps.Shape(b, s.batched, int64(s.best))), w.scores)
	return o.Err
}

// row decodes one row and appends its texts and scores, at most s.best.
func (s *step) row(ctx context.Context, w *worker, b *backends.Batch, row, windows, classes int) error {
	if n := len(s.vocabulary.tokens); classes != n {
		return steps.InputError(b, scoresName, row, fmt.Errorf("expected %d scores in a window, one for each token of vocabulary_file, found %d", n, classes))
	}
	var values []float32
	values, w.floats = steps.Floats(w.floats, &b.In[0], row*windows*classes, windows*classes)
	if s.lengths {
		n := tensor.Slice[int64](&b.In[1])[row]
		if n < 0 || n > int64(windows) {
			return steps.InputError(b, lengthName, row, fmt.Errorf("expected 0 to %d windows, found %d", windows, n))
		}
		windows = int(n)
		values = values[:windows*classes]
	}
	decode := s.greedy
	if s.width > 1 {
		decode = s.beam
	}
	if err := decode(ctx, w, values); err != nil {
		return steps.InputError(b, scoresName, row, err)
	}
	return nil
}

// least is the smallest logarithm of a probability, of 1e-15 as in pyctcdecode.
var least = math.Log(1e-15)

// window returns the best token of a window, and the logarithm of the sum of its scores' exponentials; 0 for probabilities.
func (s *step) window(scores []float32) (best int, total float64, err error) {
	best = -1
	most := float32(math.Inf(-1))
	for i, v := range scores {
		if v != v || math.IsInf(float64(v), 1) {
			return 0, 0, fmt.Errorf("expected numbers, found %v for token %d", v, i)
		}
		if v > most {
			best, most = i, v
		}
	}
	if best < 0 {
		return 0, 0, errors.New("expected a finite score in each window, found none")
	}
	if s.scores == asProbs {
		return best, 0, nil
	}
	sum := 0.0
	for _, v := range scores {
		sum += math.Exp(float64(v) - float64(most))
	}
	return best, float64(most) + math.Log(sum), nil
}

// log returns the logarithm of the probability of a score, at least least. total is that of window.
func (s *step) log(score float32, total float64) float64 {
	l := float64(score) - total
	if s.scores == asProbs {
		l = math.Log(max(float64(score), 0))
	}
	return min(max(l, least), 0)
}

// greedy takes the best token of each window.
func (s *step) greedy(_ context.Context, w *worker, values []float32) error {
	w.path = w.path[:0]
	score, before, classes := 0.0, -1, len(s.vocabulary.tokens)
	for ; len(values) >= classes; values = values[classes:] {
		best, total, err := s.window(values[:classes])
		if err != nil {
			return err
		}
		score += s.log(values[best], total)
		if best != before && best != s.vocabulary.blank {
			w.path = append(w.path, int32(best))
		}
		before = best
	}
	w.text = s.vocabulary.text(w.text[:0], w.path, false)
	w.texts, w.scores = tensor.AppendBytes(w.texts, w.text), append(w.scores, float32(score))
	return nil
}

// beam searches for the likeliest texts.
func (s *step) beam(ctx context.Context, w *worker, values []float32) error {
	q := &w.search
	q.reset(s)
	classes := len(s.vocabulary.tokens)
	for ; len(values) >= classes; values = values[classes:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		best, total, err := s.window(values[:classes])
		if err != nil {
			return err
		}
		w.logs = w.logs[:0]
		for _, v := range values[:classes] {
			w.logs = append(w.logs, s.log(v, total))
		}
		q.extend(w.logs, best)
	}
	for _, f := range q.finish() {
		w.path = q.path(w.path[:0], f.node)
		w.text = s.vocabulary.text(w.text[:0], w.path, true)
		w.texts, w.scores = tensor.AppendBytes(w.texts, w.text), append(w.scores, float32(f.score))
	}
	return nil
}
