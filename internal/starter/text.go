package starter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// The roles of the inputs of text models.
const (
	roleIDs   = "input_ids"
	roleMask  = "attention_mask"
	roleTypes = "token_type_ids"
)

// textRole returns the output of the step tokenize for an input, by its name: exporters have their own names for the same three.
func textRole(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), ":") // TensorFlow: input_ids:0
	switch name = name[strings.LastIndex(name, "/")+1:]; name {
	case "input_ids", "ids", "input_word_ids", "tokens", "input.1":
		return roleIDs
	case "attention_mask", "input_mask", "mask":
		return roleMask
	case "token_type_ids", "segment_ids", "input_type_ids":
		return roleTypes
	}
	return ""
}

// wantText returns an error if the inputs are not those of a text model.
func (b *builder) wantText() error {
	if !b.hasIDs() {
		return errors.New("expected an input input_ids [batch,tokens] of INT64 or INT32")
	}
	if b.hints.tokenizer == nil {
		return errors.New("expected a tokenizer: --tokenizer tokenizer.json (none is beside the model)")
	}
	seen := map[string]bool{}
	for _, p := range b.m.Inputs {
		role := textRole(p.Name)
		switch {
		case role == "":
			return fmt.Errorf("the input %s is none of input_ids, attention_mask and token_type_ids", &p)
		case seen[role]:
			return fmt.Errorf("several inputs are %s", role)
		case len(p.Shape) != 2 || p.DType != tensor.Int64 && p.DType != tensor.Int32:
			return fmt.Errorf("expected the input %s as [batch,tokens] of INT64 or INT32", &p)
		}
		seen[role] = true
	}
	return nil
}

// usualTokens is the largest number of tokens of a model that says nothing.
const usualTokens = 512

// tokens returns the fixed number of tokens of the model, or 0, and the largest number.
func (b *builder) tokens() (fixed, most int64) {
	i := slices.IndexFunc(b.m.Inputs, func(p Port) bool { return textRole(p.Name) == roleIDs })
	if n := b.m.Inputs[i].Shape[1]; n > 0 {
		return n, n
	}
	most = usualTokens
	var c struct {
		Length float64 `json:"model_max_length"` // may be 1e30
	}
	var s struct {
		Length int64 `json:"max_seq_length"`
	}
	switch {
	case b.nearJSON("sentence_bert_config.json", &s) && s.Length > 0:
		return 0, s.Length
	case b.nearJSON("tokenizer_config.json", &c) && c.Length >= 1 && c.Length <= 1<<20:
		return 0, int64(c.Length)
	}
	if n := b.hints.tokenizer.t.MaxLength(); n > 0 {
		return 0, int64(n)
	}
	if n := b.hints.config.Positions; n > 0 && int64(n) < most {
		most = int64(n)
	}
	b.note("Texts are cut off at %d tokens: max_length in %s/config.pbtxt changes that.", most, b.r.ModelName("tokenizer"))
	return 0, most
}

// buildText adds tokenize, the model, and pool, normalize or top_k.
func (b *builder) buildText() error {
	in, err := b.tokenize()
	if err != nil {
		return err
	}
	name := tScores
	switch {
	case b.kind == Embed && b.find.tokens:
		name = tHidden
	case b.kind == Embed:
		name = tRows
	}
	b.model(in, [][2]string{{b.find.out.Name, name}})
	switch {
	case b.kind == Text && b.find.tokens:
		b.spans()
	case name == tHidden:
		b.pool()
	case name == tRows:
		b.normalize()
	default:
		b.topK()
	}
	rows := b.sampleRows()
	b.ensembleInputs = []port{{name: inText, dtype: tensor.Bytes, dims: b.batch.dims(1)}}
	b.r.Sample = []Sample{elementSample(inText, rows, []byte(sampleText), "")}
	return nil
}

// sampleText is the text of the sample request.
const sampleText = "The bread rises because yeast makes gas in the dough."

// tokenize adds the tokenizer. It returns the model's inputs with their tensors.
func (b *builder) tokenize() (in [][2]string, err error) {
	h := b.hints.tokenizer
	b.r.Tokenized = true
	fixed, most := b.tokens()
	data := h.data
	if fixed > 0 {
		if data, err = h.padded(fixed); err != nil {
			return nil, err
		}
	}
	params := [][2]string{{"tokenizer_file", h.name}, {"max_length", str(most)}}
	if h.lower != nil && !*h.lower && strings.HasSuffix(h.name, ".txt") {
		params = append(params, [2]string{"lower_case", "false"})
	}
	s := stage{name: "tokenizer", in: [][2]string{{inText, inText}}, files: []File{{Path: h.name, Data: data}}}
	if h.merges != "" {
		s.files = append(s.files, File{Path: "merges.txt", From: h.merges})
	}
	names := map[string]string{roleIDs: tIDs, roleMask: tMask, roleTypes: tTypes}
	var casts []Port
	for _, p := range b.m.Inputs {
		role := textRole(p.Name)
		s.out = append(s.out, [2]string{role, names[role]})
		if p.DType == tensor.Int32 {
			casts = append(casts, p)
			in = append(in, [2]string{p.Name, names[role] + "_int32"})
		} else {
			in = append(in, [2]string{p.Name, names[role]})
		}
	}
	if b.kind == Embed && b.find.tokens && !slices.ContainsFunc(s.out, func(o [2]string) bool { return o[0] == roleMask }) {
		s.out = append(s.out, [2]string{roleMask, tMask}) // the step pool reads it
	}
	var declared []port // the outputs, if there are others than the usual ones
	if b.kind == Text && b.find.tokens {
		for _, out := range []struct {
			name string
			dims []int64
		}{{roleIDs, []int64{-1}}, {roleMask, []int64{-1}}, {roleTypes, []int64{-1}}, {"offset_mapping", []int64{-1, 2}}, {"special_tokens_mask", []int64{-1}}, {"word_ids", []int64{-1}}} {
			declared = append(declared, port{name: out.name, dtype: tensor.Int64, dims: out.dims})
		}
		s.out = append(s.out, [2]string{"offset_mapping", "offsets"}, [2]string{"special_tokens_mask", "special"}, [2]string{"word_ids", "words"})
	}
	s.config = native("Text in, the ids of its tokens out.", "tokenize", b.batch.steps, nil, declared, params)
	b.steps = append(b.steps, s)
	for _, p := range casts {
		from := names[textRole(p.Name)]
		b.cast(from+"_cast", from, tensor.Int64, tensor.Int32, []int64{p.Shape[1]})
	}
	return in, nil
}

// padded returns a tokenizer.json that makes every text n tokens long.
func (h *tokenizerHint) padded(n int64) ([]byte, error) {
	wrong := func(err error) error {
		return fmt.Errorf("the model reads exactly %d tokens, and '%s' cannot be told to fill texts up: %w", n, h.path, err)
	}
	if !strings.HasSuffix(h.name, ".json") || h.name == "vocab.json" {
		return nil, wrong(errors.New("expected a tokenizer.json"))
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(h.data, &all); err != nil {
		return nil, wrong(err)
	}
	var padding map[string]any
	if err := json.Unmarshal(all["padding"], &padding); err != nil || padding == nil {
		padding = map[string]any{"direction": "Right", "pad_to_multiple_of": nil, "pad_id": h.t.PadID(), "pad_type_id": 0, "pad_token": "[PAD]"}
	}
	padding["strategy"] = map[string]int64{"Fixed": n}
	text, err := json.Marshal(padding)
	if err != nil {
		return nil, wrong(err)
	}
	all["padding"] = text
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(all)
	return out.Bytes(), err
}

// pool adds the step that combines the vectors of the tokens.
func (b *builder) pool() {
	mode := b.hints.pooling
	if mode == "" {
		mode = "mean"
		b.note("The vectors of the tokens are averaged (mode mean), which is a guess: %s/config.pbtxt has the other modes.", b.r.ModelName("pooling"))
	}
	p := b.find.out
	width := p.Shape[2]
	from := tHidden
	if p.DType == tensor.FP64 {
		from = b.cast("cast", tHidden, p.DType, tensor.FP32, p.Shape[1:])
		p.DType = tensor.FP32
	}
	b.steps = append(b.steps, stage{
		name: "pooling",
		config: native("One vector per text, of length 1.", "pool", b.batch.steps,
			[]port{{name: "last_hidden_state", dtype: p.DType, dims: p.Shape[1:]}, {name: roleMask, dtype: tensor.Int64, dims: []int64{p.Shape[1]}}},
			[]port{{name: "embedding", dtype: tensor.FP32, dims: []int64{width}}}, [][2]string{{"mode", mode}, {"normalize", "true"}}),
		in: [][2]string{{"last_hidden_state", from}, {roleMask, tMask}}, out: [][2]string{{"embedding", "embedding"}},
	})
	b.r.outputs = []port{{name: "embedding", dtype: tensor.FP32, dims: b.batch.dims(width)}}
}

// spans adds the step that turns the scores of tokens into passages of the text.
func (b *builder) spans() {
	scores := b.asFP32(b.find.out, tScores, b.find.out.Shape[1:])
	s := stage{
		name: "spans", files: b.labelsFile(),
		config: native("Scores of tokens in, passages of the text with their labels out.", "token_spans", b.batch.steps, nil, nil,
			[][2]string{{"labels_file", "labels.txt"}, {"aggregation", "first"}, {"output", "tensors"}}),
		in: [][2]string{{"logits", scores}, {"offset_mapping", "offsets"}, {"special_tokens_mask", "special"}, {"word_ids", "words"}, {inText, inText}},
	}
	for _, out := range []struct {
		name  string
		dtype tensor.DType
		dim   int64
	}{{"count", tensor.Int32, 1}, {"text", tensor.Bytes, -1}, {"label", tensor.Bytes, -1}, {"start", tensor.Int32, -1}, {"end", tensor.Int32, -1}, {"score", tensor.FP32, -1}} {
		s.out = append(s.out, [2]string{out.name, out.name})
		b.r.outputs = append(b.r.outputs, port{name: out.name, dtype: out.dtype, dims: b.batch.dims(out.dim)})
	}
	b.steps = append(b.steps, s)
}

// padding returns the parameters that let texts of different lengths share a batch: shorter rows are filled up, and the mask hides that.
func (b *builder) padding() [][2]string {
	masked := slices.ContainsFunc(b.m.Inputs, func(p Port) bool { return textRole(p.Name) == roleMask })
	if b.batch.max == 0 || !masked || b.kind != Text && b.kind != Embed || b.image.ok {
		return nil
	}
	var list [][2]string
	for _, p := range b.m.Inputs {
		if p.Shape[1] != -1 {
			return nil
		}
		id := int64(0)
		if textRole(p.Name) == roleIDs {
			id = int64(b.hints.tokenizer.t.PadID())
		}
		list = append(list, [2]string{"pad." + p.Name, str(id)})
	}
	if p := b.find.out; b.find.tokens && p.Shape[1] == -1 {
		list = append(list, [2]string{"unpad." + p.Name, list[0][0][len("pad."):]})
	}
	return list
}
