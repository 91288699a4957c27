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

// diagnose adds the position in model.py and a fix to a load error. given is the path as the user configured it. Errors of other
// files and of a missing interpreter stay as they are.
func (m *model) diagnose(err error, given string) error {
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

// lineOf returns the line of the model's file in a traceback, or 0.
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
	line, _ := strconv.Atoi(digits) // 0 when there is none
	return line
}
