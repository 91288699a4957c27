//go:build cgo

package pytorch

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// parameter is a parameter of forward, or its result.
type parameter struct {
	name string
	// kind is the shim's name for the type: tensor, optional, tuple, list, strings, dict or other.
	kind string
	// count is the number of tensors in the value, -1 if variable.
	count int
	// optional is set when a call may omit the parameter.
	optional bool
	// typeText is the type in PyTorch's notation, for example "Dict[str, Tensor]".
	typeText string
}

// forward is the interface of a model. unknown is set for a package, which does not describe it.
type forward struct {
	params  []parameter
	result  parameter
	unknown bool
	state   bool // a call changes the model
}

// parseForward parses the shim's description.
func parseForward(text string) (*forward, error) {
	f := &forward{result: parameter{kind: "other", count: -1}}
	for line := range strings.Lines(text) {
		if line == "state\n" {
			f.state = true
			continue
		}
		w := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 6)
		if len(w) != 6 {
			return nil, status.Errorf(status.Internal, "unexpected description of forward: '%s'", line)
		}
		n, err := strconv.Atoi(w[3])
		if err != nil {
			return nil, status.Errorf(status.Internal, "unexpected number in the description of forward: '%s'", line)
		}
		p := parameter{name: w[1], kind: w[2], count: n, optional: w[4] == "1", typeText: w[5]}
		if w[0] == "in" {
			f.params = append(f.params, p)
		} else {
			f.result = p
		}
	}
	return f, nil
}

// How tensors are matched, with the shim's numbers.
const (
	inOrder = 0
	byKey   = 1
)

// order maps the declared tensors of one side to forward: at has the position of each among the tensors of
// forward's parameters or result. With byKey, names has the dictionary keys.
type order struct {
	how   int
	names []string
	at    []int64
	// strict is set when no names match, so the order in the configuration decides.
	strict bool
}

func newOrder(declared []boundPort) order {
	o := order{at: make([]int64, len(declared)), names: make([]string, len(declared))}
	for i := range declared {
		o.names[i] = declared[i].Name
	}
	return o
}

// leaf is one tensor or list of strings among forward's parameters.
type leaf struct {
	param *parameter
	name  string // the argument's name if it is a single tensor
}

// leaves flattens forward's parameters. open is set when the last one accepts any number of tensors.
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
				return nil, false, status.Errorf(status.Unsupported, "argument '%s' of forward is a %s, expected one only in the last place", p.name, p.typeText)
			}
			return append(list, leaf{param: p}), true, nil
		default:
			if p.optional {
				continue
			}
			return nil, false, status.Errorf(status.Unsupported,
				"argument '%s' of forward is of type %s, expected tensors, a tuple or list of them, List[str], or a Dict[str, Tensor] alone", p.name, p.typeText)
		}
	}
	return list, false, nil
}

// inputs maps the declared inputs. In order of preference it matches by dictionary key, by argument name, by the
// index in NAME__INDEX, and by the order in the configuration. For example, "INPUT__1" is the second tensor. A rule
// applies only if all names fit it.
func (f *forward) inputs(declared []boundPort) (order, error) {
	o := newOrder(declared)
	if f.unknown {
		return o, o.byIndex(len(declared))
	}
	if len(f.params) == 1 && f.params[0].kind == "dict" {
		o.how = byKey
		for i, d := range declared {
			o.at[i] = int64(i)
			if d.DType == tensor.Bytes {
				return o, status.Errorf(status.InvalidArg, "input '%s' is declared as TYPE_STRING, forward takes %s", d.Name, f.params[0].typeText)
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
	if !o.byArgument(list) { // there is room for more than the list when it is open
		if err := o.byIndex(max(len(list), len(declared))); err != nil {
			return o, status.Prefixf(err, "input ")
		}
	}
	return o, o.fits(declared, list)
}

// byArgument maps inputs by argument name. It reports whether every input has one.
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

// byIndex maps tensors by the index in NAME__INDEX, or by the order in the configuration if a name has no index. An
// index must be below room and unique.
func (o *order) byIndex(room int) error {
	taken := map[int64]string{}
	for i, name := range o.names {
		n, ok := indexOf(name)
		if !ok {
			o.strict = true
			for i := range o.at {
				o.at[i] = int64(i)
			}
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

// indexOf returns the index in a name of the form NAME__INDEX.
func indexOf(name string) (int64, bool) {
	at := strings.LastIndex(name, "__")
	if at <= 0 || at+2 == len(name) || strings.Trim(name[at+2:], "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(name[at+2:], 10, 32)
	return n, err == nil
}

// fits checks that strings map to parameters of strings, and that every required argument has an input.
func (o *order) fits(declared []boundPort, list []leaf) error {
	given := make([]bool, len(list))
	for i, d := range declared {
		at := min(int(o.at[i]), len(list)-1)
		l := &list[at]
		given[at] = true
		if text := d.DType == tensor.Bytes; text != (l.param.kind == "strings") {
			have := "a tensor"
			if text {
				have = "TYPE_STRING"
			}
			return status.Errorf(status.InvalidArg, "input '%s' is declared as %s, argument '%s' of forward is of type %s", d.Name, have, l.param.name, l.param.typeText)
		}
	}
	for i, l := range list {
		if !given[i] && !l.param.optional && l.param.kind != "list" {
			return status.Errorf(status.InvalidArg, "argument '%s' of forward has no input, configuration expects inputs %s", l.param.name, strings.Join(o.names, ", "))
		}
	}
	return nil
}

// outputs maps the declared outputs: by dictionary key, by the index in NAME__INDEX, or by the order in the
// configuration.
func (f *forward) outputs(declared []boundPort) (order, error) {
	o := newOrder(declared)
	if !f.unknown && f.result.kind == "dict" {
		o.how = byKey
		return o, nil
	}
	const most = 1 << 20 // the limit of outputs if the model does not declare their number
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
		if one := f.result.kind; d.DType == tensor.Bytes && (one == "tensor" || one == "tuple" || one == "list") {
			return o, status.Errorf(status.InvalidArg, "output '%s' is declared as TYPE_STRING, forward makes %s", d.Name, f.result.typeText)
		}
	}
	return o, nil
}
