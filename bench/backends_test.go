package main

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

func TestAbsent(t *testing.T) {
	t.Parallel()
	exit := func(code string) error {
		return fmt.Errorf("a script: %w", exec.Command("sh", "-c", "exit "+code).Run())
	}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"made":           {nil, false},
		"cannot be made": {exit("3"), true},
		"failed":         {exit("1"), false},
		"beyond a limit": {errors.New("slow"), false},
	} {
		if got := absent("x", tt.err); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
