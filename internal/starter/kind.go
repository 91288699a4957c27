package starter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// finding is what was recognised of a model's ports.
type finding struct {
	out     Port   // the output that the steps behind the model read
	classes int64  // number of classes; -1 if it is not known
	format  string // of a detector, a value of the parameter format of the step detect
	boxes   Port   // of a detector with two outputs
	tokens  bool   // the output has a vector for each token
}

// imageInput is an input for images.
type imageInput struct {
	ok      bool
	port    Port
	nhwc    bool
	c, h, w int64
}

// batching says how requests are batched.
type batching struct {
	max   int   // max_batch_size of the model and the ensemble; 0 for a model without a variable first dimension
	steps int   // max_batch_size of the native steps
	rows  int64 // the first dimension of every tensor if max is 0; -1 is any
}

// The largest batches.
const (
	imageBatch = 8
	textBatch  = 32
)

func (b *builder) batching() batching {
	variable := func(p Port) bool { return len(p.Shape) > 0 && p.Shape[0] == -1 }
	used := slices.Clone(b.m.Inputs)
	if b.kind == Custom {
		used = append(used, b.m.Outputs...)
	} else {
		used = append(used, b.find.out)
		if b.find.boxes.Name != "" {
			used = append(used, b.find.boxes)
		}
	}
	size := imageBatch
	if !b.image.ok && b.kind != Custom {
		size = textBatch
	}
	if !slices.ContainsFunc(used, func(p Port) bool { return !variable(p) }) {
		return batching{max: size, steps: size}
	}
	out := batching{rows: 1, steps: size}
	if shape := b.m.Inputs[0].Shape; len(shape) > 0 {
		out.rows = shape[0]
	}
	out.steps = max(size, int(out.rows))
	if b.kind != Custom && out.rows >= 1 {
		b.note("The model has a fixed batch of %d, so requests are not batched together: export it with a variable first dimension for more throughput.", out.rows)
	}
	return out
}

// dims returns the dims of a port in the configuration of the ensemble: those of a row, or of the fixed batch.
func (t *batching) dims(row ...int64) []int64 {
	if t.max > 0 {
		return row
	}
	return append([]int64{t.rows}, row...)
}

// choose sets the kind and what was found.
func (b *builder) choose() error {
	if b.o.Kind != "" {
		b.kind = b.o.Kind
		if err := b.fits(b.kind); err != nil {
			return fmt.Errorf("'%s' is no model of kind '%s': %w. It has %s; --kind custom takes any", b.o.Model, b.kind, err, b.m.describe())
		}
		return b.checkFiles()
	}
	var reasons []string
	for _, kind := range b.guesses() {
		err := b.fits(kind)
		if err == nil {
			b.kind = kind
			b.note("The kind is a guess from the inputs and outputs: %s. --kind %s changes it.", kind, strings.Join(others(kind), "|"))
			return b.checkFiles()
		}
		reasons = append(reasons, kind+": "+err.Error())
	}
	b.kind = Custom
	b.image, b.find = imageInput{}, finding{}
	reason := strings.Join(reasons, "; ")
	if len(reasons) == 0 {
		reason = fmt.Sprintf("it was exported for the task '%s'", b.m.Meta["task"])
	}
	if b.o.Labels != "" || b.o.Tokenizer != "" {
		return fmt.Errorf("'%s' is no model with labels or a tokenizer: %s. It has %s; leave --labels and --tokenizer out to write the model alone", b.o.Model, reason, b.m.describe())
	}
	b.note("The model fits no other kind, so no steps were added (%s).", reason)
	return nil
}

func others(kind string) []string {
	return slices.DeleteFunc(Kinds(), func(k string) bool { return k == kind })
}

// guesses returns the kinds in the order in which they are tried.
func (b *builder) guesses() []string {
	switch {
	case strings.HasPrefix(b.m.Meta["task"], "detect"):
		return []string{Detect}
	case b.m.Meta["task"] == "classify":
		return []string{Classify}
	case b.m.Meta["task"] != "" && b.m.Meta["stride"] != "": // segment, pose, obb
		return nil
	case b.hasIDs():
		if len(b.hints.labels) > 0 && b.hints.pooling == "" {
			return []string{Text, Embed}
		}
		return []string{Embed, Text}
	case b.imageInput().ok:
		if len(b.hints.labels) > 0 {
			return []string{Detect, Classify}
		}
		return []string{Detect, Embed, Classify}
	}
	return []string{Classify, Text}
}

// hasIDs reports whether an input has the ids of tokens.
func (b *builder) hasIDs() bool {
	return slices.ContainsFunc(b.m.Inputs, func(p Port) bool { return textRole(p.Name) == roleIDs })
}

// fits returns the reason why the model is not of a kind, or nil.
func (b *builder) fits(kind string) error {
	b.find = finding{classes: -1}
	b.image = b.imageInput()
	switch kind {
	case Custom:
		b.image = imageInput{}
		return nil
	case Classify:
		if err := b.wantImage(); err != nil {
			return err
		}
		return b.findScores()
	case Detect:
		if err := b.wantImage(); err != nil {
			return err
		}
		return b.findDetector()
	case Text:
		if err := b.wantText(); err != nil {
			return err
		}
		return b.findScores()
	}
	if b.image.ok && !b.hasIDs() {
		return b.findVector()
	}
	if err := b.wantText(); err != nil {
		return err
	}
	return b.findVector()
}

// describe lists the inputs and outputs.
func (m *Model) describe() string {
	list := func(ports []Port) string {
		var all []string
		for _, p := range ports {
			all = append(all, p.String())
		}
		return strings.Join(all, ", ")
	}
	return "the inputs " + list(m.Inputs) + " and the outputs " + list(m.Outputs)
}

// String returns the name, type and shape of a port. For example: pixels FP32 [-1,3,224,224].
func (p *Port) String() string {
	if p.Shape == nil {
		return p.Name + " " + p.DType.String() + " of unknown shape"
	}
	return p.Name + " " + p.DType.String() + " " + tensor.Of(p.Shape...).String()
}

// symbol returns the name of a variable dimension in lower case, or "".
func (p *Port) symbol(i int) string {
	if i < len(p.Symbols) {
		return strings.ToLower(p.Symbols[i])
	}
	return ""
}

func contains(name string, parts ...string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(parts, func(s string) bool { return strings.Contains(name, s) })
}

// imageInput returns the input for images, if it is the only one.
func (b *builder) imageInput() (in imageInput) {
	if len(b.m.Inputs) != 1 {
		return in
	}
	p := b.m.Inputs[0]
	if len(p.Shape) != 4 || !p.DType.IsFloat() && p.DType != tensor.Uint8 {
		return in
	}
	in.port = p
	colours := func(n int64) bool { return n == 1 || n == 3 }
	switch c, last := p.Shape[1], p.Shape[3]; {
	case colours(c):
		in.c, in.h, in.w = c, p.Shape[2], last
	case colours(last):
		in.c, in.h, in.w, in.nhwc = last, c, p.Shape[2], true
	case c == -1 && (contains(p.symbol(1), "channel") || contains(p.Name, "pixel_values", "image")):
		in.c, in.h, in.w = 3, p.Shape[2], last
	case last == -1 && contains(p.symbol(3), "channel"):
		in.c, in.h, in.w, in.nhwc = 3, c, p.Shape[2], true
	default:
		return in
	}
	in.ok = true
	return in
}

// wantImage returns an error if the model has no input for images.
func (b *builder) wantImage() error {
	if b.image.ok {
		return nil
	}
	if n := len(b.m.Inputs); n != 1 {
		return fmt.Errorf("expected one input for images, found %d inputs", n)
	}
	return errors.New("expected an input for images: [batch,3,height,width], [batch,height,width,3], or with 1 channel, of floating-point numbers or UINT8")
}

// findScores finds the output with a score for each class.
func (b *builder) findScores() error {
	best := -1
	for i, p := range b.m.Outputs {
		n, ok := vectorOf(p)
		if !ok || !p.DType.IsFloat() || contains(p.Name, "embed", "hidden", "feature", "pooler") {
			continue
		}
		if best < 0 || contains(p.Name, "logit", "prob", "score") && !contains(b.m.Outputs[best].Name, "logit", "prob", "score") {
			best, b.find.classes = i, n
		}
	}
	if best < 0 {
		return b.findTokenScores()
	}
	b.find.out = b.m.Outputs[best]
	return nil
}

// findTokenScores finds the output of a token classifier, with a score for each token and class.
func (b *builder) findTokenScores() error {
	i := slices.IndexFunc(b.m.Outputs, func(p Port) bool { return len(p.Shape) == 3 && p.DType.IsFloat() })
	switch {
	case i < 0 || !b.hasIDs():
		return errors.New("expected an output [batch,classes] of floating-point numbers")
	case len(b.hints.labels) == 0:
		return fmt.Errorf("expected an output [batch,classes], or --labels for the scores of each token, found %s without labels", &b.m.Outputs[i])
	case b.o.Labels == "" && b.m.Outputs[i].Shape[2] != int64(len(b.hints.labels)):
		return fmt.Errorf("expected an output [batch,classes], or [batch,tokens,%d] for the labels of '%s', found %s", len(b.hints.labels), b.hints.labelsFrom, &b.m.Outputs[i])
	}
	b.find.out, b.find.tokens, b.find.classes = b.m.Outputs[i], true, b.m.Outputs[i].Shape[2]
	return nil
}

// vectorOf returns the size of an output with one vector for each row. Dimensions of 1 do not count.
func vectorOf(p Port) (n int64, ok bool) {
	if len(p.Shape) < 2 {
		return 0, false
	}
	n = 1
	for i, d := range p.Shape[1:] {
		switch {
		case d == 1:
		case n != 1, d == -1 && i > 0:
			return 0, false
		default:
			n = d
		}
	}
	return n, true
}

// findVector finds the output with a vector for each row, or else for each token.
func (b *builder) findVector() error {
	for _, pass := range []func(p Port) bool{
		func(p Port) bool { return contains(p.Name, "sentence_embedding", "embeds", "embedding", "features") },
		func(p Port) bool { return contains(p.Name, "last_hidden_state", "token_embeddings") },
		func(p Port) bool { return contains(p.Name, "hidden", "pooler", "feature", "embed") },
		func(p Port) bool { return len(p.Shape) == 3 && !contains(p.Name, "logit") },
	} {
		for _, p := range b.m.Outputs {
			_, vector := vectorOf(p)
			tokens := len(p.Shape) == 3 && !b.image.ok && p.Shape[2] != 1
			if pass(p) && p.DType.IsFloat() && p.DType != tensor.BF16 && (len(p.Shape) == 2 && vector || tokens) {
				b.find.out, b.find.tokens = p, tokens
				return nil
			}
		}
	}
	return errors.New("expected an output with a vector for each row, or for each token of a text, that is called embedding, hidden_state or the like")
}

// checkFiles returns an error for files that the kind does not use.
func (b *builder) checkFiles() error {
	if b.o.Tokenizer != "" && (b.kind == Custom || b.image.ok) {
		return fmt.Errorf("--tokenizer '%s' is for texts, and this model of kind '%s' reads none", b.o.Tokenizer, b.kind)
	}
	return b.checkLabels()
}

// checkLabels compares the number of labels with that of the classes.
func (b *builder) checkLabels() error {
	n, c := int64(len(b.hints.labels)), b.find.classes
	switch {
	case b.kind == Custom || b.kind == Embed:
		if b.o.Labels != "" {
			return fmt.Errorf("--labels '%s' names classes, and a model of kind '%s' has none", b.o.Labels, b.kind)
		}
	case n == 0:
		if b.o.Labels == "" && c > 0 {
			b.note("There are no labels, so responses have the numbers of classes: --labels FILE names them.")
		}
	case c > 0 && n != c && b.o.Labels == "":
		b.note("'%s' has %d labels for %s classes and was not used.", b.hints.labelsFrom, n, strconv.FormatInt(c, 10))
		b.hints.labels = nil
	case c > 0 && n != c:
		more := ""
		if c == n+1 {
			more = "; a model with one class more often has 'background' as its first"
		}
		return fmt.Errorf("labels '%s': found %d labels, expected %d, one for each class of output '%s'%s", b.o.Labels, n, c, b.find.out.Name, more)
	case b.o.Labels == "":
		b.note("The labels are those of %s; --labels FILE names others.", b.hints.labelsFrom)
	}
	b.r.labels = b.hints.labels
	return nil
}
