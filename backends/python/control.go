package python

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"tutti/core/infer"
	"tutti/core/status"
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
func (w *worker) control(p *packet) error {
	var o order
	if err := json.Unmarshal(p.body, &o); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected order: %w", err)
	}
	if o.Do == "ready" {
		return w.tellReady(p.id, &o)
	}
	if w.m.b.control == nil {
		return status.Errorf(status.Unsupported, "no models can be loaded here")
	}
	if w.commanded.Load() {
		return status.Errorf(status.Unsupported, "model '%s' wants to %s model '%s' while it is itself being loaded or unloaded, expected from execute", w.m.sig.Model, o.Do, o.Model)
	}
	switch o.Do {
	case "load":
		return w.load(w.ctx, &o)
	case "unload":
		return w.m.b.control.Unload(w.ctx, o.Model, o.Dependents)
	default:
		return status.Errorf(status.InvalidArg, "unexpected order '%s'", o.Do)
	}
}

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

func (w *worker) tellReady(id uint32, o *order) error {
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
	w.reply(id, flags, nil)
	return errReplied
}
