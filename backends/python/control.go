package python

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// order is what a worker wants of the server's models.
type order struct {
	Do         string            `json:"do"`
	Model      string            `json:"model"`
	Version    string            `json:"version"`
	Config     string            `json:"config"`
	Files      map[string]string `json:"files"`
	Dependents bool              `json:"dependents"`
}

// control loads, unloads or asks after a model.
func (s *side) control(p *packet) error {
	w := s.w
	var o order
	if err := json.Unmarshal(p.body, &o); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected order: %w", err)
	}
	if o.Do == "ready" {
		return s.tellReady(p.id, &o)
	}
	if w.m.b.control == nil {
		return status.Errorf(status.Unsupported, "no models can be loaded here")
	}
	ctx := w.inside()
	switch o.Do {
	case "load":
		return w.load(ctx, &o)
	case "unload":
		return w.m.b.control.Unload(ctx, o.Model, o.Dependents)
	default:
		return status.Errorf(status.InvalidArg, "unexpected order '%s'", o.Do)
	}
}

// inside returns a context of the worker's life with the values of what the worker does now: the repository knows by them a model
// that loads others while it is itself being loaded.
func (w *worker) inside() context.Context {
	if outer := w.command.Load(); outer != nil {
		return inside{w.ctx, *outer}
	}
	if outer := w.running.context(); outer != nil {
		return inside{w.ctx, outer}
	}
	return w.ctx
}

// inside is a context with the values of another one.
type inside struct {
	context.Context                 //nolint:containedctx // inside is a context itself
	outer           context.Context //nolint:containedctx // for its values alone
}

// Value implements context.Context.
func (c inside) Value(key any) any { return c.outer.Value(key) }

func (w *worker) load(ctx context.Context, o *order) error {
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

func (s *side) tellReady(id uint32, o *order) error {
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
		flags |= flagYes
	}
	s.reply(id, flags, nil)
	return errReplied
}
