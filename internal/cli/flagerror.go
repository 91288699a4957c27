package cli

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// The errors of the package flag. The last part of the first is "parse error" or "value out of range" for the types of that package, and
// the error of Set for others.
var (
	wrongValue   = regexp.MustCompile(`^invalid (?:boolean )?value "(?s:(.*))" for (?:flag )?-([^ ]+): (?s:(.+))$`)
	missingValue = regexp.MustCompile(`^flag needs an argument: -+(.+)$`)
)

// explainFlag words the error of a flag as other errors are, and adds the flag that was probably meant in place of one that does
// not exist.
func explainFlag(fs *flag.FlagSet, err error) error {
	if m := missingValue.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s has no value, expected %s", m[1], form(fs, m[1]))
	}
	if m := wrongValue.FindStringSubmatch(err.Error()); m != nil {
		value, name, reason := m[1], m[2], m[3]
		if reason != "parse error" && reason != "value out of range" {
			return errors.New("--" + name + ": " + reason)
		}
		return fmt.Errorf("--%s is '%s', expected %s", name, value, form(fs, name))
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	if name == "url" && strings.HasPrefix(fs.Name(), commandName+" repo ") {
		return fmt.Errorf("there is no flag '--url': the server is an argument here, for example %s http://127.0.0.1:8000", fs.Name())
	}
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("there is no flag '--%s'%s", name, meant("--", name, names))
}

// form returns what a flag expects, for an error.
func form(fs *flag.FlagSet, name string) string {
	f := fs.Lookup(name)
	if f == nil {
		return "a value"
	}
	if g, ok := f.Value.(flag.Getter); ok {
		switch g.Get().(type) {
		case time.Duration:
			return "a duration with its unit, for example 500ms, 5s or 2m"
		case int, int64, uint, uint64:
			return "a whole number"
		case float64:
			return "a number"
		case bool:
			return "true or false"
		}
	}
	if o, ok := f.Value.(*output); ok {
		return o.choice()
	}
	word, _ := flag.UnquoteUsage(f)
	return word
}
