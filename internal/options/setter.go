package options

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// setter checks a value and stores it. Its errors have Triton's texts where Triton has the same check.
type setter = func(value string) error

// onOff returns the flag of a boolean.
func onOff(name string, to *bool, byDefault, help string) Flag {
	return Flag{Name: name, Arg: argBool, Default: byDefault, Help: help, set: boolean(to)}
}

// word returns the flag of a text.
func word(name, arg string, to *string, byDefault, help string) Flag {
	return Flag{Name: name, Arg: arg, Default: byDefault, Help: help, set: text(to)}
}

// words returns the flag of a list, which may be repeated.
func words(name, arg string, to *[]string, help string) Flag {
	return Flag{Name: name, Arg: arg, Many: true, Help: help, set: texts(to)}
}

// number returns the flag of an integer from least to most.
func number[T int | int64](name, arg string, to *T, byDefault string, least, most int64, help string) Flag {
	return Flag{Name: name, Arg: arg, Default: byDefault, Help: help, set: integer(to, least, most)}
}

// span returns the flag of a duration of at least least units. arg is argSeconds or argMillis.
func span(name, arg string, to *time.Duration, byDefault string, least int64, help string) Flag {
	unit := time.Second
	if arg == argMillis {
		unit = time.Millisecond
	}
	return Flag{Name: name, Arg: arg, Default: byDefault, Help: help, set: func(value string) error {
		n, err := parseInt(value, least, maxInt)
		*to = time.Duration(n) * unit
		return err
	}}
}

// oneOf returns the flag of one of the words, without regard to case. The first word is the default.
func oneOf(name, arg string, to *string, help string, words ...string) Flag {
	return Flag{Name: name, Arg: arg, Default: words[0], Help: help, Values: words, set: func(value string) error {
		for _, w := range words {
			if strings.EqualFold(w, value) {
				*to = w
				return nil
			}
		}
		return notOneOf(name, value, words)
	}}
}

func notOneOf(flag, value string, words []string) error {
	return fmt.Errorf("invalid argument for --%s: '%s', expected one of: %s", flag, value, strings.Join(words, ", "))
}

// own marks a flag that tritonserver lacks.
func (f Flag) own() Flag { f.Own = true; return f }

// deprecated marks a flag with the one to use instead.
func (f Flag) deprecated(instead string) Flag { f.Instead = instead; return f }

// text returns the setter of a text.
func text(to *string) setter { return func(value string) error { *to = value; return nil } }

// texts returns the setter of a list. It ignores a value that the list contains.
func texts(to *[]string) setter {
	return func(value string) error {
		if value == "" {
			return errors.New("expected a value, got none")
		}
		if !slices.Contains(*to, value) {
			*to = append(*to, value)
		}
		return nil
	}
}

func boolean(to *bool) setter {
	return func(value string) (err error) { *to, err = parseBool(value); return err }
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "on", "1":
		return true, nil
	case "false", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("invalid value for bool option: %s", s)
}

func integer[T int | int64](to *T, least, most int64) setter {
	return func(value string) error {
		n, err := parseInt(value, least, most)
		*to = T(n)
		return err
	}
}

func parseInt(s string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(s, "+"), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("Provided option value is out of bound. Got %s", s) //nolint:staticcheck // Triton's words
	case err != nil:
		return 0, fmt.Errorf("Invalid option value. Got %s", s) //nolint:staticcheck // Triton's words
	}
	return n, inRange(n, least, most)
}

// inRange returns an error with Triton's text if n is not from least to most.
func inRange(n, least, most int64) error {
	if n < least || n > most {
		return fmt.Errorf("Provided option value is out of bound. Got %d, expected %d to %d", n, least, most) //nolint:staticcheck // Triton's words
	}
	return nil
}

// pattern returns the setter of a regular expression, which it compiles to check it.
func pattern(to *string) setter {
	return func(value string) error {
		if _, err := regexp.Compile(ignoreCase + value); err != nil {
			return fmt.Errorf("invalid header forward pattern: %w", err)
		}
		*to = value
		return nil
	}
}

// setKey stores the value of one of the settings of a flag. prefix precedes their keys in errors.
func setKey(flag, prefix, key, value string, settings map[string]setter) error {
	if set := settings[key]; set != nil {
		return set(value)
	}
	known := slices.Sorted(maps.Keys(settings))
	for i := range known {
		known[i] = prefix + known[i]
	}
	return fmt.Errorf("unknown setting '%s' of --%s, expected one of: %s", prefix+key, flag, strings.Join(known, ", "))
}

// put sets a value of a map of maps.
func put(all *map[string]map[string]string, name, key, value string) {
	if *all == nil {
		*all = map[string]map[string]string{}
	}
	if (*all)[name] == nil {
		(*all)[name] = map[string]string{}
	}
	(*all)[name][key] = value
}

// triple splits a text like NAME,KEY=VALUE at its first separator, which is first, and at "=".
func triple(flag, form, first, s string) (name, key, value string, err error) {
	name, setting, ok := strings.Cut(s, first)
	key, value, ok2 := strings.Cut(setting, "=")
	if !ok || !ok2 || name == "" || key == "" || value == "" {
		return "", "", "", fmt.Errorf("--%s option format is '%s'. Got %s", flag, form, s)
	}
	return name, key, value, nil
}

// restriction returns the setter of a restricted part of an API. kind is Triton's word for a part. For example,
// "health,trace:admin-key=secret" requires the header "admin-key: secret" of both.
func restriction(to *[]infer.Restriction, flag, kind string) setter {
	return func(value string) error {
		names, key, secret, err := triple(flag, "<config name>:<setting>=<value>", ":", value)
		if err != nil {
			return err
		}
		r := infer.Restriction{Key: key, Value: secret}
		for name := range strings.SplitSeq(names, ",") {
			api, ok := infer.ParseAPI(name)
			switch {
			case !ok:
				return fmt.Errorf("unknown restricted %s '%s', expected one of: %s", kind, name, strings.Join(infer.APINames(), ", "))
			case slices.ContainsFunc(append(*to, r), func(r infer.Restriction) bool { return slices.Contains(r.APIs, api) }):
				return fmt.Errorf("restricted %s '%s' can not be specified in multiple config groups", kind, name)
			}
			r.APIs = append(r.APIs, api)
		}
		*to = append(*to, r)
		return nil
	}
}

func anything(string) error { return nil }

func anyInteger(value string) error {
	_, err := parseInt(value, math.MinInt64, math.MaxInt64)
	return err
}

func parseFraction(value string) (float64, error) {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("Invalid option value. Got %s", value) //nolint:staticcheck // Triton's words
	}
	return v, nil
}

// parseShare parses a fraction from 0 to 1.
func parseShare(value string) (float64, error) {
	v, err := parseFraction(value)
	if err == nil && (v < 0 || v > 1) {
		err = fmt.Errorf("expects limit fraction to be in range [0.0, 1.0], got %s", value)
	}
	return v, err
}

func anyFraction(to *float64) setter {
	return func(value string) (err error) {
		*to, err = parseFraction(value)
		return err
	}
}

func inferThreads(value string) error {
	n, err := parseInt(value, math.MinInt64, math.MaxInt64)
	if err == nil && (n < 2 || n > 128) {
		err = errors.New("invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.") //nolint:revive,staticcheck // Triton's words
	}
	return err
}

// pairOf returns the setter of a value of the form device:value.
func pairOf(flag string, check setter) setter {
	return func(value string) error {
		device, v, ok := strings.Cut(value, ":")
		if !ok {
			return fmt.Errorf("Cannot parse option arguments due to missing delimiter. --%s option format is '<device>:<value>'. Got %s", flag, value) //nolint:staticcheck // Triton's words
		}
		return errors.Join(anyInteger(device), check(v))
	}
}

// refusal returns the setter of a flag of a feature that is not built. It accepts only the value that switches the
// feature off.
func refusal(flag, why string) setter {
	return func(value string) error {
		if strings.HasPrefix(flag, "allow-") {
			if on, err := parseBool(value); err != nil || !on {
				return err
			}
		}
		return fmt.Errorf("unsupported: --%s, %s", flag, why)
	}
}
