// Command manpages writes the manual pages of tutti, one for each command, and the files with which shells complete its
// commands. FOLDER is laid out as /usr/share. For example: go run ./internal/cli/manpages bin/share
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/cli"
)

func main() {
	os.Exit(run(os.Args[1:])) //nolint:forbidigo // this is main
}

// run returns the exit status.
func run(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: manpages FOLDER")
		return 2
	}
	if err := write(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// The folders in /usr/share of what is written.
const (
	pages = "man/man1"
	bash  = "bash-completion/completions/tutti"
	zsh   = "zsh/vendor-completions/_tutti"
	fish  = "fish/vendor_completions.d/tutti.fish"
)

// write writes the files into a folder, which it creates. The date of the pages is that of SOURCE_DATE_EPOCH, by default of
// today.
func write(folder string) error {
	var errs []error
	for _, path := range []string{pages + "/tutti.1", bash, zsh, fish} {
		errs = append(errs, os.MkdirAll(filepath.Dir(filepath.Join(folder, path)), 0o755)) //nolint:gosec // for everybody
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	root := cli.Tree(tutti.Components{})
	root.DisableAutoGenTag = true // it has a date of its own
	errs = append(errs, root.GenBashCompletionFileV2(filepath.Join(folder, bash), true), root.GenZshCompletionFile(filepath.Join(folder, zsh)),
		root.GenFishCompletionFile(filepath.Join(folder, fish), true))
	keepLines(root)
	errs = append(errs, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "tutti " + tutti.Version, Manual: "Tutti"}, filepath.Join(folder, pages)))
	return errors.Join(errs...)
}

// keepLines indents the lines of lists so far that they stay lines: the pages are made from Markdown.
func keepLines(c *cobra.Command) {
	c.Long = strings.ReplaceAll(strings.Replace(c.Long, "\n  ", "\n\n  ", 1), "\n  ", "\n    ")
	for _, sub := range c.Commands() {
		keepLines(sub)
	}
}
