package textapi

import (
	"context"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

// completion is the state of a request to /v1/completions. The handler's goroutine owns it.
type completion struct {
	x      *exchange
	queue  *transport.Queue
	events transport.EventWriter
	ctx    context.Context //nolint:containedctx // that of the handler
	cancel context.CancelFunc

	choices   []choice
	submitted int
	ended     int
	err       error // the first one
	id        string
	created   int64

	promptTokens, completionTokens int
}

// choice is the completion of one prompt.
type choice struct {
	// text is what was not sent yet: all of it, or of a stream the first bytes of a code point whose others are in the next response.
	text   []byte
	finish string
	prompt bool // the tokens of the prompt are counted
}

// Completions serves POST /v1/completions: the responses of a decoupled model as a stream, or their texts as one.
func (s *Service) Completions() transport.Handler {
	return s.handler(transport.FormOpenAI, "/v1/completions", func(x *exchange) error {
		if err := x.read((*exchange).completionsMember); err != nil {
			return err
		}
		if err := x.describe(completions); err != nil {
			return err
		}
		if x.fields.field == "" {
			x.fields.field = "prompt"
		}
		if err := x.checkTexts(true); err != nil {
			return err
		}
		if err := x.charge(); err != nil {
			return err
		}
		x.want(x.api.Completion, x.api.Finish, x.api.PromptTokens, x.api.Tokens)
		return x.complete()
	})
}

func (x *exchange) completionsMember(name string) (err error) {
	f := &x.fields
	switch name {
	case "prompt":
		x.items, f.ids = x.items[:0], false
		return x.readTexts(name, true)
	case "model":
		return x.modelName()
	case "n", "best_of":
		return x.readOne(name)
	case "logprobs":
		if is, err := x.p.Null(); is || err != nil {
			return err
		}
		return invalid(name, "'%s' is %s, and this server has no probabilities of tokens: leave it out", name, x.found())
	case "stream_options":
		return x.readStreamOptions(name)
	case "user":
		return x.p.Skip()
	case "stream":
		x.extra = append(x.extra, extra{name, x.p.Mark()})
		f.stream, err = x.flag(name, false)
		return err
	default:
		x.extra = append(x.extra, extra{name, x.p.Mark()})
		if err := infer.TooMany("parameters", len(x.extra)); err != nil {
			return err
		}
		return x.p.Skip()
	}
}

// readOne reads the number of completions of a prompt.
func (x *exchange) readOne(name string) error {
	n, err := x.count(name)
	if err == nil && n > 1 {
		err = invalid(name, "'%s' is %d, and this server has one completion of each prompt, expected 1: send the prompt several times", name, n)
	}
	return err
}

func (x *exchange) readStreamOptions(name string) error {
	if is, err := x.p.Null(); is || err != nil {
		return err
	}
	if x.p.Peek() != '{' {
		return x.wrong(name, "an object")
	}
	return x.p.Members(func(member []byte) (err error) {
		if string(member) != "include_usage" {
			return x.p.Skip()
		}
		x.fields.usage, err = x.flag("stream_options.include_usage", false)
		return err
	})
}

// complete executes the prompts, some at a time, and responds.
func (x *exchange) complete() error {
	c := &completion{x: x, queue: transport.NewQueue(), choices: make([]choice, len(x.items)), created: time.Now().Unix()}
	c.id = "cmpl-" + strconv.FormatInt(x.srv.started, 36) + "-" + strconv.FormatInt(x.srv.completions.Add(1), 36)
	c.ctx, c.cancel = context.WithCancel(x.r.Context())
	defer c.cancel()
	defer c.queue.Release()
	c.events = x.srv.EventWriter(x.w, c.cancel)
	var cut <-chan struct{}
	leave := func() {}
	if x.fields.stream {
		x.srv.Load.SetHeader(x.w.Header(), x.r.Header)
		cut, leave = x.srv.Streams.Enter()
	}
	defer func() { leave() }()
	for c.submitted < min(bulkBatches, len(c.choices)) {
		c.submit()
	}
	for c.ended < c.submitted {
		e, err := c.queue.Next(cut)
		switch {
		case err != nil: // the server stops
			c.fail(err)
			leave()
			cut = nil
		case e.Response != nil:
			c.response(&e)
			e.Response.Release()
		default:
			c.end(&e)
		}
	}
	return c.finish()
}

// submit submits the next prompt.
func (c *completion) submit() {
	n := c.submitted
	c.submitted++
	sink := c.queue.Sink(n)
	req, err := c.x.request(&c.x.p, n, n+1)
	if err != nil {
		sink.Close(err)
		return
	}
	req.Async = true // this goroutine takes the responses
	c.x.srv.Infer.Submit(c.ctx, req, sink)
}

// response adds a response to its choice, and sends what is complete of a stream.
func (c *completion) response(e *transport.Event) {
	if c.err != nil {
		return
	}
	ch, trace := &c.choices[e.Request], e.Response.Trace
	trace.Mark(tracing.HTTPSendStart)
	defer trace.Mark(tracing.HTTPSendEnd)
	before := len(ch.text)
	if err := c.add(ch, e.Response); err != nil {
		c.fail(err)
		return
	}
	if !c.x.fields.stream {
		c.x.in.Charge.Add(int64(len(ch.text) - before))
		return
	}
	size := e.Response.Size()
	c.x.in.Charge.Add(size)
	defer c.x.in.Charge.Shrink(size)
	if n := whole(ch.text); n > 0 {
		c.chunk(e.Request, ch.text[:n], "")
		ch.text = append(ch.text[:0], ch.text[n:]...)
	}
}

// add reads the outputs of a response, as far as it has them.
func (c *completion) add(ch *choice, resp *infer.Response) error {
	a := c.x.api
	text, err := appendText(ch.text, resp.Output(a.Completion))
	if err != nil {
		return status.Prefixf(err, "model '%s', output '%s': ", c.x.model.name, a.Completion)
	}
	ch.text = text
	if t := resp.Output(a.Finish); a.Finish != "" && t != nil {
		reason, err := appendText(nil, t)
		if err != nil {
			return status.Prefixf(err, "model '%s', output '%s': ", c.x.model.name, a.Finish)
		}
		if len(reason) > 0 {
			ch.finish = string(reason)
		}
	}
	if n, has := tokensIn(resp, a.Tokens); has {
		c.completionTokens += n
	}
	if n, has := tokensIn(resp, a.PromptTokens); has && !ch.prompt {
		ch.prompt = true
		c.promptTokens += n
	}
	return nil
}

// appendText appends the elements of a tensor of texts, nil for none.
func appendText(b []byte, t *tensor.Tensor) ([]byte, error) {
	if t == nil {
		return b, nil
	}
	for rest := t.Bytes(); len(rest) > 0; {
		text, next, ok := tensor.NextBytes(rest)
		if !ok {
			return b, status.Reasonf(status.StepFailed, "the tensor ends inside a text")
		}
		b, rest = append(b, text...), next
	}
	return b, nil
}

// tokensIn returns the number of tokens that a response has in an output, if it has the output.
func tokensIn(resp *infer.Response, name string) (n int, has bool) {
	if name == "" {
		return 0, false
	}
	t := resp.Output(name)
	if t == nil {
		return 0, false
	}
	if t.DType == tensor.Int32 {
		return count(tensor.Slice[int32](t)), true
	}
	return count(tensor.Slice[int64](t)), true
}

// whole returns the length of text without the first bytes of a code point at its end.
func whole(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if at := len(text) - n; utf8.RuneStart(text[at]) {
			if utf8.FullRune(text[at:]) {
				return len(text)
			}
			return at
		}
	}
	return len(text)
}

// end ends a choice, and submits the next prompt.
func (c *completion) end(e *transport.Event) {
	c.ended++
	if e.Err != nil {
		c.fail(e.Err)
	}
	if c.err != nil {
		return
	}
	ch := &c.choices[e.Request]
	if ch.finish == "" {
		ch.finish = "stop"
	}
	if c.x.fields.stream {
		c.chunk(e.Request, ch.text, ch.finish)
	}
	if c.submitted < len(c.choices) && c.ctx.Err() == nil {
		c.submit()
	}
}

// fail ends the request with its first error. The others are those of requests that were cancelled for it.
func (c *completion) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.events.Begun() && !c.events.Broken() {
		x := c.x
		code := status.CodeOf(err).HTTP()
		x.out = transport.AppendOpenAI(append(x.out[:0], `data: {"error":`...), code, err)
		c.events.Send(append(x.out, "}\n\n"...), code)
	}
	c.cancel()
}

// finish completes the response.
func (c *completion) finish() error {
	x := c.x
	switch {
	case c.events.Begun():
		if c.err == nil {
			if x.fields.usage {
				x.out = append(c.appendHead(append(x.out[:0], "data: {"...)), `,"choices":[]`...)
				c.appendUsage()
				c.events.Send(append(x.out, "}\n\n"...), http.StatusOK)
			}
			c.events.Send([]byte("data: [DONE]\n\n"), http.StatusOK)
		}
		c.events.End()
		return nil
	case c.err != nil:
		return c.err
	default:
		return x.respond(c.encode)
	}
}

// appendHead appends what is first in the response, and in each chunk of a stream.
func (c *completion) appendHead(b []byte) []byte {
	b = append(append(append(b, `"id":"`...), c.id...), `","object":"text_completion","created":`...)
	b = append(strconv.AppendInt(b, c.created, 10), `,"model":`...)
	return jsontext.AppendValid(b, c.x.model.name)
}

// chunk sends a part of a choice.
func (c *completion) chunk(index int, text []byte, finish string) {
	x := c.x
	x.out = append(c.appendHead(append(x.out[:0], "data: {"...)), `,"choices":[`...)
	x.out = append(appendChoice(x.out, index, text, finish), ']')
	if x.fields.usage {
		x.out = append(x.out, `,"usage":null`...)
	}
	c.events.Send(append(x.out, "}\n\n"...), http.StatusOK)
}

// appendChoice appends a choice, which ends if finish is not empty.
func appendChoice(b []byte, index int, text []byte, finish string) []byte {
	b = strconv.AppendInt(append(b, `{"index":`...), int64(index), 10)
	b = jsontext.AppendValid(append(b, `,"text":`...), text)
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		return append(b, "null}"...)
	}
	return append(jsontext.AppendValid(b, finish), '}')
}

func (c *completion) appendUsage() {
	x := c.x
	x.out = strconv.AppendInt(append(x.out, `,"usage":{"prompt_tokens":`...), int64(c.promptTokens), 10)
	x.out = strconv.AppendInt(append(x.out, `,"completion_tokens":`...), int64(c.completionTokens), 10)
	x.out = append(strconv.AppendInt(append(x.out, `,"total_tokens":`...), int64(c.promptTokens+c.completionTokens), 10), '}')
}

// encode appends the response that is not streamed.
func (c *completion) encode(x *exchange) {
	x.out = append(c.appendHead(append(x.out, '{')), `,"choices":[`...)
	for i := range c.choices {
		if i > 0 {
			x.out = append(x.out, ',')
		}
		x.out = appendChoice(x.out, i, c.choices[i].text, c.choices[i].finish)
		x.flush()
	}
	x.out = append(x.out, ']')
	c.appendUsage()
	x.out = append(x.out, '}')
}
