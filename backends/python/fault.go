package python

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

var (
	noModule   = regexp.MustCompile(`No module named '([^'.]+)`)
	syntaxLine = regexp.MustCompile(`SyntaxError: .*\(.*, line (\d+)\)`)
	frameLine  = regexp.MustCompile(`(?m)^\s*(\S.*)\((\d+)\): `)
)

// faulty gives the error of a model.py its place in the file, as it was given, and what to do about it. It leaves alone
// what another file or a missing interpreter is the reason of.
func (m *model) faulty(err error, given string) error {
	if _, known := config.Diagnosed(err); known || status.CodeOf(err) == status.Unavailable || status.CodeOf(err) == status.Cancelled {
		return err
	}
	text := err.Error()
	err = config.At(config.Coded(config.PythonModel, "", err), given, m.lineOf(text))
	switch found := noModule.FindStringSubmatch(text); {
	case found != nil:
		return config.WithFix(err, "run '"+m.python+" -m pip install "+found[1]+"', or give the model an environment that has it by the parameter EXECUTION_ENV_PATH")
	case strings.Contains(text, "SyntaxError: "):
		return config.WithFix(err, "correct the line")
	case strings.Contains(text, "expected a class "), strings.Contains(text, "expected a method "):
		return config.WithFix(err, "write class TritonPythonModel with a method execute(self, requests)")
	}
	return err
}

// lineOf returns the line of the model's file that a text of Python names, 0 for none.
func (m *model) lineOf(text string) int {
	digits := ""
	if found := syntaxLine.FindStringSubmatch(text); found != nil {
		digits = found[1]
	}
	for _, frame := range frameLine.FindAllStringSubmatch(text, -1) {
		if digits == "" && frame[1] == m.file {
			digits = frame[2]
		}
	}
	line, _ := strconv.Atoi(digits) // 0 where there is none
	return line
}
