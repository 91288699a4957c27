package textapi

import (
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// The kinds of embeddings, as in embedding_types.
const (
	typeDense  = "dense"
	typeSparse = "sparse"
	typeMulti  = "multi_vector"
)

// Embeddings serves POST /v1/embeddings, and the same at the path that Infinity and Text Embeddings Inference have.
func (s *Service) Embeddings(route string) transport.Handler {
	return s.handler(transport.FormOpenAI, route, func(x *exchange) error {
		if err := x.read((*exchange).embeddingsMember); err != nil {
			return err
		}
		if err := x.describe(embeddings); err != nil {
			return err
		}
		if err := x.checkEmbeddings(); err != nil {
			return err
		}
		if err := x.embed(); err != nil {
			return err
		}
		return x.respond(encodeEmbeddings)
	})
}

func (x *exchange) embeddingsMember(name string) (err error) {
	f := &x.fields
	switch name {
	case "input":
		x.items, f.ids = x.items[:0], false
		return x.readTexts(name, true)
	case "model":
		return x.modelName()
	case "encoding_format":
		var format string
		if format, err = x.text(name); err != nil {
			return err
		}
		if f.base64 = format == "base64"; !f.base64 && format != "" && format != "float" {
			return invalid(name, "'%s' is '%.100s', expected float or base64", name, format)
		}
	case "dimensions":
		f.dimensions, err = x.count(name)
	case "embedding_types":
		return x.readTypes(name)
	case "item_errors":
		f.itemErrors, err = x.flag(name, false)
	default: // user among them
		return x.p.Skip()
	}
	return err
}

// readTypes reads which embeddings the client wants.
func (x *exchange) readTypes(name string) error {
	if is, err := x.p.Null(); is || err != nil {
		return err
	}
	if x.p.Peek() != '[' {
		return x.wrong(name, "a list of dense, sparse and multi_vector")
	}
	f := &x.fields
	return x.p.Elements(func() error {
		kind, err := x.text(name)
		switch {
		case err != nil:
			return err
		case kind == typeDense:
			f.dense = true
		case kind == typeSparse:
			f.sparse = true
		case kind == typeMulti:
			f.multi = true
		default:
			return invalid(name, "'%s' has '%.100s', expected dense, sparse or multi_vector", name, kind)
		}
		return nil
	})
}

// checkEmbeddings checks what the request wants against what the model has, and selects the outputs.
func (x *exchange) checkEmbeddings() error {
	f, a := &x.fields, x.api
	if f.field == "" {
		f.field = "input"
	}
	if !f.dense && !f.sparse && !f.multi {
		f.dense = true
	}
	if err := x.checkTexts(false); err != nil {
		return err
	}
	switch {
	case f.dense && a.Dense == "":
		return x.noType(typeDense)
	case f.sparse && len(a.Sparse) == 0:
		return x.noType(typeSparse)
	case f.multi && a.MultiVector == "":
		return x.noType(typeMulti)
	case f.dimensions > 0 && !a.AnyDimension && !slices.Contains(a.Dimensions, f.dimensions):
		if len(a.Dimensions) == 0 {
			return invalid("dimensions", "'dimensions' is %d, and model '%s' does not permit to cut its embeddings: leave it out", f.dimensions, x.model.name)
		}
		return invalid("dimensions", "'dimensions' is %d, expected one of %v for model '%s'", f.dimensions, a.Dimensions, x.model.name)
	}
	x.wantEmbeddings()
	return nil
}

func (x *exchange) noType(kind string) error {
	return invalid("embedding_types", "model '%s' has no %s embeddings: its parameter '%s' names no output of them", x.model.name, kind, x.api.Param)
}

// wantEmbeddings selects the outputs.
func (x *exchange) wantEmbeddings() {
	f, a := &x.fields, x.api
	x.want(a.Tokens)
	if f.dense {
		x.want(a.Dense)
	}
	if f.sparse {
		x.want(a.Sparse...)
	}
	if f.multi {
		x.want(a.MultiVector)
		if a.Mask != a.Tokens {
			x.want(a.Mask)
		}
	}
}

// embed executes the texts and checks their embeddings, so that encoding cannot fail.
func (x *exchange) embed() error {
	if err := x.run(); err != nil {
		return err
	}
	if err := x.countTokens(); err != nil {
		return err
	}
	for i := range x.results {
		r := &x.results[i]
		if r.err == nil {
			r.err = x.checkResult(r)
		}
		if r.err != nil && !x.fields.itemErrors {
			return r.err
		}
	}
	return nil
}

// checkResult checks that the embeddings of a text can be encoded.
func (x *exchange) checkResult(r *result) error {
	f, a := &x.fields, x.api
	if f.dense {
		v, err := x.vector(r, a.Dense)
		if err == nil && f.dimensions > len(v) {
			err = invalid("dimensions", "'dimensions' is %d, and the embeddings of model '%s' have %d", f.dimensions, x.model.name, len(v))
		}
		if err != nil {
			return err
		}
	}
	if f.sparse {
		if err := x.eachWeight(r, func(int64, float32) {}); err != nil {
			return err
		}
	}
	if f.multi {
		return x.eachVector(r, func([]float32) {})
	}
	return nil
}

// eachWeight calls each with the weights of a text that are not 0.
func (x *exchange) eachWeight(r *result, each func(index int64, weight float32)) error {
	names := x.api.Sparse
	weights, err := x.vector(r, names[len(names)-1])
	if err != nil {
		return err
	}
	if len(names) == 1 {
		for i, w := range weights {
			if w != 0 {
				each(int64(i), w)
			}
		}
		return nil
	}
	i, n := 0, 0
	err = x.integers(r, names[0], func(index int64) {
		if n++; i < len(weights) && weights[i] != 0 {
			each(index, weights[i])
		}
		i++
	})
	if err == nil && n != len(weights) {
		err = x.differ(names[0], n, names[1], len(weights))
	}
	return err
}

// eachVector calls each with the vectors of a text, without those of padding.
func (x *exchange) eachVector(r *result, each func(v []float32)) error {
	t, _, _, err := x.output(r, x.api.MultiVector)
	if err != nil {
		return err
	}
	all, err := x.vector(r, x.api.MultiVector)
	if err != nil {
		return err
	}
	width := 1
	if rank := t.Shape.Rank(); rank > 0 {
		width = max(1, int(t.Shape.Dim(rank-1)))
	}
	if x.api.Mask == "" {
		for ; len(all) >= width; all = all[width:] {
			each(all[:width])
		}
		return nil
	}
	i, rows := 0, len(all)/width
	err = x.integers(r, x.api.Mask, func(keep int64) {
		if keep != 0 && i < rows {
			each(all[i*width : (i+1)*width])
		}
		i++
	})
	if err == nil && i != rows {
		err = x.differ(x.api.Mask, i, x.api.MultiVector, rows)
	}
	return err
}

func encodeEmbeddings(x *exchange) {
	f := &x.fields
	x.out = append(x.out, `{"object":"list","data":[`...)
	for i := range x.results {
		r := &x.results[i]
		if i > 0 {
			x.out = append(x.out, ',')
		}
		if r.err != nil {
			x.out = strconv.AppendInt(append(x.out, `{"object":"error","index":`...), int64(i), 10)
			x.out = append(transport.OpenAIItem(append(x.out, `,"error":`...), r.err), '}')
			continue
		}
		x.out = strconv.AppendInt(append(x.out, `{"object":"embedding","index":`...), int64(i), 10)
		if f.dense {
			v, _ := x.vector(r, x.api.Dense) // checked by embed, like those below
			if f.dimensions > 0 {
				v = x.cut(v, f.dimensions)
			}
			x.out = appendVector(append(x.out, `,"embedding":`...), v, f.base64)
		}
		if f.sparse {
			x.appendSparse(r)
		}
		if f.multi {
			x.out = append(x.out, `,"multi_vector_embedding":[`...)
			x.appendVectors(r, f.base64)
			x.out = append(x.out, ']')
		}
		x.out = append(x.out, '}')
		x.flush()
	}
	x.out = jsontext.AppendValid(append(x.out, `],"model":`...), x.model.name)
	x.appendUsage()
	x.out = append(x.out, '}')
}

// appendUsage appends the number of tokens, 0 where the model does not count them.
func (x *exchange) appendUsage() {
	x.out = strconv.AppendInt(append(x.out, `,"usage":{"prompt_tokens":`...), int64(x.tokens), 10)
	x.out = append(strconv.AppendInt(append(x.out, `,"total_tokens":`...), int64(x.tokens), 10), '}')
}

// appendSparse appends the weights of a text in the form that vector databases take.
func (x *exchange) appendSparse(r *result) {
	x.out = append(x.out, `,"sparse_embedding":{"indices":[`...)
	first := true
	_ = x.eachWeight(r, func(index int64, _ float32) {
		x.comma(&first)
		x.out = strconv.AppendInt(x.out, index, 10)
	})
	x.out = append(x.out, `],"values":[`...)
	first = true
	_ = x.eachWeight(r, func(_ int64, weight float32) {
		x.comma(&first)
		x.out = strconv.AppendFloat(x.out, float64(weight), 'g', -1, 32)
	})
	x.out = append(x.out, "]}"...)
}

// appendVectors appends the vectors of a text, separated by commas.
func (x *exchange) appendVectors(r *result, inBase64 bool) {
	first := true
	_ = x.eachVector(r, func(v []float32) {
		x.comma(&first)
		x.out = appendVector(x.out, v, inBase64)
	})
}

func (x *exchange) comma(first *bool) {
	if !*first {
		x.out = append(x.out, ',')
	}
	*first = false
}
