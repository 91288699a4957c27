package pytorch

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// parameter is one of forward's, or its result.
type parameter struct {
	name string
	// kind is the shim's word: tensor, optional, tuple, list, strings, dict or other.
	kind string
	// count is how many tensors it is made of, -1 for any number.
	count int
	// optional says that it may be left out.
	optional bool
	// written is its type as PyTorch writes it.
	written string
}

// forward is what a model takes and makes; unknown marks a package, which does not tell.
type forward struct {
	params  []parameter
	result  parameter
	unknown bool
}

// parseForward reads the shim's description.
func parseForward(text string) (*forward, error) {
	f := &forward{result: parameter{kind: "other", count: -1}}
	for line := range strings.Lines(text) {
		w := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 6)
		if len(w) != 6 {
			return nil, status.Errorf(status.Internal, "unexpected description of forward: '%s'", line)
		}
		n, err := strconv.Atoi(w[3])
		if err != nil {
			return nil, status.Errorf(status.Internal, "unexpected number in the description of forward: '%s'", line)
		}
		p := parameter{name: w[1], kind: w[2], count: n, optional: w[4] == "1", written: w[5]}
		if w[0] == "in" {
			f.params = append(f.params, p)
		} else {
			f.result = p
		}
	}
	return f, nil
}

// The ways in which tensors find their place; the shim's numbers.
const (
	inOrder = 0
	byKey   = 1
)

// order says where the tensors of one side belong: the position of each among the tensors that forward's parameters or
// result are made of, or with byKey the key that its name is.
type order struct {
	how   int
	names []string
	at    []int64
	// strict marks that no name told, so that the order of the declaration counts.
	strict bool
}

// plan is the order of both sides.
type plan struct{ in, out order }

// tensorName is a declared tensor.
type tensorName struct {
	name string
	text bool // of strings
}

// leaf is one tensor, or list of strings, of forward's parameters.
type leaf struct {
	param *parameter
	name  string // the argument's, where it is one tensor
}

// leaves lists what forward's parameters are made of; open says that the last one takes any number more.
func (f *forward) leaves() (list []leaf, open bool, err error) {
	for i := range f.params {
		p := &f.params[i]
		switch p.kind {
		case "tensor", "optional", "strings":
			list = append(list, leaf{p, p.name})
		case "tuple":
			for range p.count {
				list = append(list, leaf{param: p})
			}
		case "list":
			if i != len(f.params)-1 {
				return nil, false, status.Errorf(status.Unsupported, "argument '%s' of forward is a %s, expected one only in the last place", p.name, p.written)
			}
			return append(list, leaf{param: p}), true, nil
		default:
			if p.optional {
				continue
			}
			return nil, false, status.Errorf(status.Unsupported,
				"argument '%s' of forward is of type %s, expected tensors, a tuple or list of them, List[str], or a Dict[str, Tensor] alone", p.name, p.written)
		}
	}
	return list, false, nil
}

// dictionary reports whether forward takes one, which is then all it takes.
func (f *forward) dictionary() bool { return len(f.params) == 1 && f.params[0].kind == "dict" }

// inputs finds the place of each input: the key of a dictionary, an argument's name, the index in NAME__INDEX, and where
// not all names are of one such form, the order of declaration.
func (f *forward) inputs(declared []tensorName) (order, error) {
	o := order{at: make([]int64, len(declared)), names: namesOf(declared)}
	if f.unknown {
		return o, o.byIndex(len(declared))
	}
	if f.dictionary() {
		o.how = byKey
		for i, d := range declared {
			o.at[i] = int64(i)
			if d.text {
				return o, status.Errorf(status.InvalidArg, "input '%s' is declared as TYPE_STRING, forward takes %s", d.name, f.params[0].written)
			}
		}
		return o, nil
	}
	list, open, err := f.leaves()
	if err != nil {
		return o, err
	}
	if n := len(list); len(declared) > n && !open {
		return o, status.Errorf(status.InvalidArg, "configuration expects %d inputs, model provides %d", len(declared), n)
	}
	room := len(list)
	if open {
		room = max(room, len(declared))
	}
	if !o.byArgument(list) {
		if err := o.byIndex(room); err != nil {
			return o, status.Prefixf(err, "input ")
		}
	}
	return o, o.fits(declared, list)
}

// byArgument places inputs that all have the names of arguments.
func (o *order) byArgument(list []leaf) bool {
	for i, name := range o.names {
		k := slices.IndexFunc(list, func(l leaf) bool { return l.name == name })
		if k < 0 {
			return false
		}
		o.at[i] = int64(k)
	}
	return true
}

// byIndex places tensors that are all named NAME__INDEX, and else in the order of their declaration. Each place is
// below room and taken once.
func (o *order) byIndex(room int) error {
	taken := map[int64]string{}
	for i, name := range o.names {
		n, ok := indexOf(name)
		if !ok {
			o.declared()
			return nil
		}
		o.at[i] = n
		if n >= int64(room) {
			return status.Errorf(status.InvalidArg, "'%s' has index %d, expected one below %d", name, n, room)
		}
		if other := taken[n]; other != "" {
			return status.Errorf(status.InvalidArg, "'%s' has the index of '%s'", name, other)
		}
		taken[n] = name
	}
	return nil
}

// declared places tensors in the order of their declaration.
func (o *order) declared() {
	o.strict = true
	for i := range o.at {
		o.at[i] = int64(i)
	}
}

// indexOf splits a name of the form NAME__INDEX.
func indexOf(name string) (int64, bool) {
	at := strings.LastIndex(name, "__")
	if at <= 0 || at+2 == len(name) || strings.Trim(name[at+2:], "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(name[at+2:], 10, 32)
	return n, err == nil
}

// fits checks that strings go to where strings are taken, and that every argument is given that must be.
func (o *order) fits(declared []tensorName, list []leaf) error {
	given := make([]bool, len(list))
	for i, d := range declared {
		l := &list[min(int(o.at[i]), len(list)-1)]
		given[min(int(o.at[i]), len(list)-1)] = true
		if text := l.param.kind == "strings"; text != d.text {
			have := "a tensor"
			if d.text {
				have = "TYPE_STRING"
			}
			return status.Errorf(status.InvalidArg, "input '%s' is declared as %s, argument '%s' of forward is of type %s", d.name, have, l.param.name, l.param.written)
		}
	}
	for i, l := range list {
		if !given[i] && !l.param.optional && l.param.kind != "list" {
			return status.Errorf(status.InvalidArg, "argument '%s' of forward has no input, configuration expects inputs %s", l.param.name, strings.Join(o.names, ", "))
		}
	}
	return nil
}

// outputs finds the place of each output: the key of a dictionary, the index in NAME__INDEX, and else the order of
// declaration.
func (f *forward) outputs(declared []tensorName) (order, error) {
	o := order{at: make([]int64, len(declared)), names: namesOf(declared)}
	if !f.unknown && f.result.kind == "dict" {
		o.how = byKey
		return o, nil
	}
	const most = 1 << 20 // what a model that does not tell may make
	made := f.result.count
	if f.unknown || made < 0 {
		made = most
	}
	if len(declared) > made {
		return o, status.Errorf(status.InvalidArg, "configuration expects %d outputs, model provides %d", len(declared), made)
	}
	if err := o.byIndex(made); err != nil {
		return o, status.Prefixf(err, "output ")
	}
	for _, d := range declared {
		if one := f.result.kind; d.text && (one == "tensor" || one == "tuple" || one == "list") {
			return o, status.Errorf(status.InvalidArg, "output '%s' is declared as TYPE_STRING, forward makes %s", d.name, f.result.written)
		}
	}
	return o, nil
}

func namesOf(declared []tensorName) []string {
	names := make([]string, len(declared))
	for i, d := range declared {
		names[i] = d.name
	}
	return names
}

// planOf ties declared tensors to forward's.
func planOf(f *forward, ins, outs []boundPort) (*plan, error) {
	named := func(ports []boundPort) []tensorName {
		list := make([]tensorName, len(ports))
		for i, p := range ports {
			list[i] = tensorName{p.name, p.dtype == tensor.Bytes}
		}
		return list
	}
	in, err := f.inputs(named(ins))
	if err != nil {
		return nil, err
	}
	out, err := f.outputs(named(outs))
	return &plan{in, out}, err
}
