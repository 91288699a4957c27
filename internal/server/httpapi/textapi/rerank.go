package textapi

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Rerank serves POST /v1/rerank and /v2/rerank, in the shape of Cohere and Jina.
func (s *Service) Rerank(route string) transport.Handler {
	return s.handler(transport.FormOpenAI, route, func(x *exchange) error {
		x.fields.truncate = true
		if err := x.read((*exchange).rerankMember); err != nil {
			return err
		}
		if err := x.rank("documents"); err != nil {
			return err
		}
		return x.respond(encodeRanking)
	})
}

func (x *exchange) rerankMember(name string) (err error) {
	f := &x.fields
	switch name {
	case "query":
		return x.readQuery(name)
	case "documents":
		return x.readDocuments(name)
	case "model":
		return x.modelName()
	case "top_n":
		f.topN, err = x.count(name)
	case "return_documents":
		f.documents, err = x.flag(name, false)
	default:
		return x.p.Skip()
	}
	return err
}

// readQuery records the query.
func (x *exchange) readQuery(name string) error {
	if x.p.Peek() != '"' {
		return x.wrong(name, "a string")
	}
	x.fields.query = x.p.Mark()
	s, err := x.p.Str()
	x.fields.queryLen = tensor.EncodedLen(len(s))
	return err
}

// readDocuments records the documents: strings, or objects with a text.
func (x *exchange) readDocuments(name string) error {
	x.items, x.fields.field = x.items[:0], name
	if x.p.Peek() != '[' {
		return x.wrong(name, "a list of strings, or of objects with the member 'text'")
	}
	return x.p.Elements(func() error {
		if x.p.Peek() != '{' {
			return x.readText(name, false)
		}
		before := len(x.items)
		err := x.p.Members(func(member []byte) error {
			if string(member) != "text" || len(x.items) > before {
				return x.p.Skip()
			}
			return x.readText(name, false)
		})
		if err == nil && len(x.items) == before {
			err = invalid(name, "'%s' has an object without the member 'text', expected a string or an object with it", name)
		}
		return err
	})
}

// rank executes the texts with the query, and orders them by their scores, which are then in x.floats.
func (x *exchange) rank(field string) error {
	f := &x.fields
	if err := x.describe(rerank); err != nil {
		return err
	}
	f.field = cmp.Or(f.field, field)
	if f.queryLen <= tensor.EncodedLen(0) {
		return &transport.FieldError{Param: "query", Code: transport.CodeEmpty, Err: status.Errorf(status.InvalidArg, "'query' is missing or empty, expected a text")}
	}
	if err := x.checkTexts(true); err != nil {
		return err
	}
	x.want(x.api.Score, x.api.Tokens)
	if err := x.run(); err != nil {
		return err
	}
	if err := x.countTokens(); err != nil {
		return err
	}
	x.floats, x.order = x.floats[:0], x.order[:0]
	for i := range x.results {
		v, err := x.vector(&x.results[i], x.api.Score)
		switch {
		case err != nil:
			return err
		case len(v) != 1:
			return status.Reasonf(status.StepFailed, "model '%s' has sent %d scores per text in output '%s', expected 1", x.model.name, len(v), x.api.Score)
		}
		score := v[0]
		if x.api.Sigmoid && !f.raw {
			score = float32(1 / (1 + math.Exp(-float64(score))))
		}
		x.floats, x.order = append(x.floats, score), append(x.order, i)
	}
	slices.SortStableFunc(x.order, func(a, b int) int { return cmp.Compare(x.floats[b], x.floats[a]) })
	if f.topN > 0 {
		x.order = x.order[:min(f.topN, len(x.order))]
	}
	return nil
}

func encodeRanking(x *exchange) {
	x.out = append(x.out, `{"object":"list","results":[`...)
	for n, i := range x.order {
		if n > 0 {
			x.out = append(x.out, ',')
		}
		x.out = strconv.AppendInt(append(x.out, `{"index":`...), int64(i), 10)
		x.out = strconv.AppendFloat(append(x.out, `,"relevance_score":`...), float64(x.floats[i]), 'g', -1, 32)
		if x.fields.documents {
			x.out = append(x.appendItem(append(x.out, `,"document":{"text":`...), i), '}')
		}
		x.out = append(x.out, '}')
		x.flush()
	}
	x.out = jsontext.AppendValid(append(x.out, `],"model":`...), x.model.name)
	x.appendUsage()
	x.out = append(x.out, `,"meta":{"api_version":{"version":"2"}}}`...)
}

// appendItem appends a text of the request. Each text has a result here.
func (x *exchange) appendItem(b []byte, i int) []byte {
	x.p.Reset(x.items[i].at)
	s, _ := x.p.Str() // read before
	return jsontext.AppendValid(b, s)
}
