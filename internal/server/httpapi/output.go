package httpapi

import "github.com/tutti-server/tutti/core/status"

// output reads one element of outputs.
func (x *exchange) output() error {
	if x.p.peek() != '{' {
		return missing("name")
	}
	var w want
	var have field
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		key, err := x.p.key()
		if err != nil {
			return err
		}
		switch {
		case string(key) == "name" && have.see(hasName):
			name, err := x.text("name")
			if err != nil {
				return err
			}
			w.name = x.names.of(name)
			continue
		case string(key) == "parameters" && have.see(hasParameters):
			err = x.outputParameters(&w, &have)
		default:
			err = x.p.skip()
		}
		if err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return x.completeOutput(w, have)
}

func (x *exchange) outputParameters(w *want, have *field) error {
	if x.p.peek() != '{' {
		return x.p.skip()
	}
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		if err = x.outputParameter(w, have); err != nil {
			return err
		}
	}
	return err
}

func (x *exchange) outputParameter(w *want, have *field) error {
	key, err := x.p.key()
	if err != nil {
		return err
	}
	switch {
	case string(key) == "binary_data" && have.see(hasBinary):
		w.binary, err = x.boolean("binary_data")
		return err
	case string(key) == "classification" && have.see(hasClasses):
		n, err := x.p.number()
		u, ok := n.unsigned()
		if err != nil || !ok {
			return status.Errorf(status.Internal, "Unable to set 'classification': %s", notUnsigned)
		}
		w.classes = u
		return nil
	}
	return x.placeParameter(key, &w.region, have)
}

func (x *exchange) completeOutput(w want, have field) (err error) {
	switch {
	case have.has(hasRegion) && have.has(hasClasses):
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'classification'")
	case have.has(hasRegion) && w.binary:
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'binary_data'")
	case !have.has(hasName):
		return missing("name")
	case have.has(hasRegion):
		if w.window, err = x.srv.regions.Open(w.region.name, w.region.offset, w.region.size); err != nil {
			return err
		}
		w.shared = true
		x.windows = append(x.windows, w.window)
	}
	x.wants = append(x.wants, w)
	x.req.Outputs = append(x.req.Outputs, w.name)
	return nil
}
