package python

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// modelMessage is the body of MODEL: loading, unloading or checking a model of the server.
type modelMessage struct {
	Do         string            `json:"do"`
	Model      string            `json:"model"`
	Version    string            `json:"version"`
	Config     string            `json:"config"`
	Files      map[string]string `json:"files"`
	Dependents bool              `json:"dependents"`
}

// handleModel handles MODEL.
func (s *side) handleModel(p *packet) error {
	w := s.w
	var o modelMessage
	if err := json.Unmarshal(p.body, &o); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected order: %w", err)
	}
	if o.Do == "ready" {
		return s.replyReady(p.id, &o)
	}
	if w.m.b.control == nil {
		return status.Errorf(status.Unsupported, "no models can be loaded here")
	}
	ctx := w.callContext()
	switch o.Do {
	case "load":
		return w.load(ctx, &o)
	case "unload":
		return w.m.b.control.Unload(ctx, o.Model, o.Dependents)
	default:
		return status.Errorf(status.InvalidArg, "unexpected order '%s'", o.Do)
	}
}

// callContext returns a context that lives as long as the worker, with the values of the current command or request. From these
// values the repository recognises a model that loads others while it is being loaded itself.
func (w *worker) callContext() context.Context {
	if outer := w.command.Load(); outer != nil {
		return valuesContext{w.ctx, *outer}
	}
	if outer := w.running.context(); outer != nil {
		return valuesContext{w.ctx, outer}
	}
	return w.ctx
}

// valuesContext is a context with the values of another one.
type valuesContext struct {
	context.Context                 //nolint:containedctx // valuesContext is a context itself
	outer           context.Context //nolint:containedctx // for its values alone
}

// Value implements context.Context.
func (c valuesContext) Value(key any) any { return c.outer.Value(key) }

func (w *worker) load(ctx context.Context, o *modelMessage) error {
	options := infer.LoadOptions{Config: o.Config}
	for path, text := range o.Files {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return status.Errorf(status.InvalidArg, "unexpected content of file '%s' for model '%s': %w", path, o.Model, err)
		}
		if options.Files == nil {
			options.Files = map[string][]byte{}
		}
		options.Files[path] = data
	}
	return w.m.b.control.Load(ctx, o.Model, options)
}

func (s *side) replyReady(id uint32, o *modelMessage) error {
	w := s.w
	if w.m.b.catalog == nil {
		return status.Errorf(status.Unsupported, "no models are known here")
	}
	version, err := infer.ParseVersion(o.Version)
	if err != nil {
		return err
	}
	flags := flagFinal
	if w.m.b.catalog.ModelReady(o.Model, version) == nil {
		flags |= flagTrue
	}
	s.reply(id, flags, nil)
	return errReplied
}
