package options

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// setter checks a value and stores it in o. Its errors have Triton's texts where Triton has the same check.
type setter = func(o *Options, value string) error

// text returns the setter of a text.
func text(field func(*Options) *string) setter {
	return func(o *Options, value string) error {
		*field(o) = value
		return nil
	}
}

// texts returns the setter of a list. It ignores a value that the list contains.
func texts(field func(*Options) *[]string) setter {
	return func(o *Options, value string) error {
		if value == "" {
			return errors.New("expected a value, got none")
		}
		if list := field(o); !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
		return nil
	}
}

func boolean(field func(*Options) *bool) setter {
	return func(o *Options, value string) (err error) {
		*field(o), err = parseBool(value)
		return err
	}
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

func integer(field func(*Options) *int, least, most int) setter {
	return func(o *Options, value string) error {
		n, err := parseInt(value, int64(least), int64(most))
		*field(o) = int(n)
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

const portMax = 65535

// portNumber returns the setter of a port. checkPorts checks the range: as in Triton, the port of a disabled
// protocol may be any number.
func portNumber(field func(*Options) *int) setter {
	return integer(field, math.MinInt32, math.MaxInt32)
}

// duration returns the setter of a whole number of units, at least least.
func duration(field func(*Options) *time.Duration, unit time.Duration, least int64) setter {
	return func(o *Options, value string) error {
		n, err := parseInt(value, least, maxInt)
		*field(o) = time.Duration(n) * unit
		return err
	}
}

// choice returns the setter of one of the words, without regard to case.
func choice(field func(*Options) *string, flag string, words ...string) setter {
	return func(o *Options, value string) error {
		for _, w := range words {
			if strings.EqualFold(w, value) {
				*field(o) = w
				return nil
			}
		}
		return fmt.Errorf("invalid argument for --%s: '%s', expected one of: %s", flag, value, strings.Join(words, ", "))
	}
}

// pattern returns the setter of a regular expression, which it compiles to check it.
func pattern(field func(*Options) *string) setter {
	return func(o *Options, value string) error {
		if _, err := regexp.Compile(ignoreCase + value); err != nil {
			return fmt.Errorf("invalid header forward pattern: %w", err)
		}
		*field(o) = value
		return nil
	}
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

// restriction returns the setter of a restricted part of an API. kind is Triton's word for a part.
func restriction(field func(*Options) *[]Restriction, flag, kind string) setter {
	return func(o *Options, value string) error {
		names, key, secret, err := triple(flag, "<config name>:<setting>=<value>", ":", value)
		if err != nil {
			return err
		}
		list := field(o)
		r := Restriction{APIs: strings.Split(names, ","), Key: key, Value: secret}
		for i, api := range r.APIs {
			switch {
			case !slices.Contains(infer.APINames(), api):
				return fmt.Errorf("unknown restricted %s '%s', expected one of: %s", kind, api, strings.Join(infer.APINames(), ", "))
			case slices.Contains(r.APIs[:i], api), slices.ContainsFunc(*list, func(r Restriction) bool { return slices.Contains(r.APIs, api) }):
				return fmt.Errorf("restricted %s '%s' can not be specified in multiple config groups", kind, api)
			}
		}
		*list = append(*list, r)
		return nil
	}
}
