package textapi

import (
	"math"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Embed serves POST /embed of Text Embeddings Inference.
func (s *Service) Embed() transport.Handler {
	return s.tei("/embed", func(x *exchange) error {
		x.fields.dense = true
		return x.embedTEI(encodeEmbed)
	})
}

// EmbedAll serves POST /embed_all: a vector for each token.
func (s *Service) EmbedAll() transport.Handler {
	return s.tei("/embed_all", func(x *exchange) error {
		x.fields.multi = true
		return x.embedTEI(encodeEmbedAll)
	})
}

// EmbedSparse serves POST /embed_sparse.
func (s *Service) EmbedSparse() transport.Handler {
	return s.tei("/embed_sparse", func(x *exchange) error {
		x.fields.sparse = true
		return x.embedTEI(encodeEmbedSparse)
	})
}

// RerankTEI serves POST /rerank of Text Embeddings Inference.
func (s *Service) RerankTEI() transport.Handler {
	return s.tei("/rerank", func(x *exchange) error {
		if err := x.read((*exchange).rerankTEIMember); err != nil {
			return err
		}
		if err := x.rank("texts"); err != nil {
			return err
		}
		return x.respond(encodeRankingTEI)
	})
}

func (s *Service) tei(route string, serve func(*exchange) error) transport.Handler {
	return s.handler(transport.FormTEI, route, serve)
}

func (x *exchange) embedTEI(encode func(*exchange)) error {
	x.fields.normalize = true
	if err := x.read((*exchange).embedMember); err != nil {
		return err
	}
	if err := x.describe(embeddings); err != nil {
		return err
	}
	if x.fields.field == "" {
		x.fields.field = "inputs"
	}
	if err := x.checkEmbeddings(); err != nil {
		return err
	}
	if err := x.embed(); err != nil {
		return err
	}
	return x.respond(encode)
}

func (x *exchange) embedMember(name string) (err error) {
	f := &x.fields
	switch name {
	case "inputs":
		x.items, f.ids = x.items[:0], false
		return x.readTexts(name, true)
	case "normalize":
		f.normalize, err = x.flag(name, true)
	case "dimensions":
		f.dimensions, err = x.count(name)
	default:
		return x.commonMember(name)
	}
	return err
}

func (x *exchange) rerankTEIMember(name string) (err error) {
	f := &x.fields
	switch name {
	case "query":
		return x.readQuery(name)
	case "texts":
		x.items = x.items[:0]
		if x.p.Peek() != '[' {
			return x.wrong(name, "a list of strings")
		}
		return x.readTexts(name, false)
	case "raw_scores":
		f.raw, err = x.flag(name, false)
	case "return_text":
		f.documents, err = x.flag(name, false)
	default:
		return x.commonMember(name)
	}
	return err
}

// commonMember reads the members that several routes have.
func (x *exchange) commonMember(name string) (err error) {
	var text string
	switch name {
	case "truncate":
		x.fields.refuse = x.p.Peek() == 'f'
		x.fields.truncate, err = x.flag(name, false)
	case "truncation_direction":
		if text, err = x.text(name); err == nil && text != "" && text != "Right" && text != "right" {
			err = invalid(name, "'%s' is '%.100s', and texts are cut on the right only: leave it out", name, text)
		}
	case "prompt_name":
		if text, err = x.text(name); err == nil && text != "" {
			err = invalid(name, "'%s' is '%.100s', and models of this server have no prompts: put it in front of the text", name, text)
		}
	default:
		return x.p.Skip()
	}
	return err
}

// eachResult calls encode for each text, in a list.
func (x *exchange) eachResult(encode func(r *result)) {
	x.out = append(x.out, '[')
	for i := range x.results {
		if i > 0 {
			x.out = append(x.out, ',')
		}
		encode(&x.results[i])
		x.flush()
	}
	x.out = append(x.out, ']')
}

func encodeEmbed(x *exchange) {
	x.eachResult(func(r *result) {
		v, _ := x.vector(r, x.api.Dense) // checked by embed, like those below
		if f := &x.fields; f.dimensions > 0 {
			v = x.cut(v, f.dimensions)
		} else if f.normalize && !isNormal(v) {
			v = x.cut(v, len(v))
		}
		x.out = appendVector(x.out, v, false)
	})
}

// isNormal reports whether v has about the length 1, so that normalizing it would change its last digits only.
func isNormal(v []float32) bool {
	sum := float32(0)
	for _, f := range v {
		sum += f * f
	}
	return math.Abs(float64(sum)-1) < 1e-4
}

func encodeEmbedAll(x *exchange) {
	x.eachResult(func(r *result) {
		x.out = append(x.out, '[')
		x.appendVectors(r, false)
		x.out = append(x.out, ']')
	})
}

func encodeEmbedSparse(x *exchange) {
	x.eachResult(func(r *result) {
		x.out = append(x.out, '[')
		first := true
		_ = x.eachWeight(r, func(index int64, weight float32) {
			x.comma(&first)
			x.out = strconv.AppendInt(append(x.out, `{"index":`...), index, 10)
			x.out = strconv.AppendFloat(append(x.out, `,"value":`...), float64(weight), 'g', -1, 32)
			x.out = append(x.out, '}')
		})
		x.out = append(x.out, ']')
	})
}

func encodeRankingTEI(x *exchange) {
	x.out = append(x.out, '[')
	for n, i := range x.order {
		if n > 0 {
			x.out = append(x.out, ',')
		}
		x.out = strconv.AppendInt(append(x.out, `{"index":`...), int64(i), 10)
		x.out = strconv.AppendFloat(append(x.out, `,"score":`...), float64(x.floats[i]), 'g', -1, 32)
		if x.fields.documents {
			x.out = x.appendItem(append(x.out, `,"text":`...), i)
		}
		x.out = append(x.out, '}')
		x.flush()
	}
	x.out = append(x.out, ']')
}

// Info serves GET /info: what the model of /embed or, without one, that of /rerank is.
func (s *Service) Info(w http.ResponseWriter, r *http.Request, _ transport.Path) {
	of, role := embeddings, `{"embedding":{"pooling":"model"}}`
	m, err := s.resolve(r, "", of)
	if status.CodeOf(err) == status.NotFound {
		of, role = rerank, `{"reranker":{"id2label":{"0":"LABEL_0"},"label2id":{"LABEL_0":0}}}`
		m, err = s.resolve(r, "", of)
	}
	if err != nil {
		transport.FormTEI.Write(w, err)
		return
	}
	api := of.api(&m.apis)
	most := max(1, m.desc.MaxBatch)
	b := jsontext.AppendValid([]byte(`{"model_id":`), m.name)
	b = append(b, `,"model_sha":null,"model_dtype":"float32","model_type":`...)
	b = append(b, role...)
	b = strconv.AppendInt(append(b, `,"max_concurrent_requests":`...), bulkBatches, 10)
	b = strconv.AppendInt(append(b, `,"max_input_length":`...), int64(api.MaxTokens), 10)
	b = strconv.AppendInt(append(b, `,"max_batch_tokens":`...), int64(most*api.MaxTokens), 10)
	b = strconv.AppendInt(append(b, `,"max_batch_requests":`...), int64(most), 10)
	b = strconv.AppendInt(append(b, `,"max_client_batch_size":`...), infer.MaxEntries, 10)
	b = strconv.AppendBool(append(b, `,"auto_truncate":`...), api.Truncate)
	b = append(b, `,"tokenization_workers":1,"version":`...)
	b = jsontext.AppendValid(b, s.Version)
	transport.WriteBody(w, append(b, `,"sha":null,"docker_label":null}`...))
}
