// Command protogen turns the .proto files of a tree into Go. It compiles them
// in process and feeds the standard plugins, so no protoc has to be installed
// and the versions of tools/go.mod settle every byte of the output.
//
// Usage: protogen [-root dir] [-check]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugin is a generator and the parameter handed to it.
type plugin struct{ name, parameter string }

var plugins = []plugin{{"protoc-gen-go", "paths=source_relative"}, {"protoc-gen-go-grpc", "paths=source_relative"}}

func main() {
	root := flag.String("root", "../proto", "folder that imports are relative to")
	check := flag.Bool("check", false, "write nothing; fail when a generated file differs")
	flag.Parse()
	if err := run(context.Background(), *root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, check bool) error {
	names, err := list(root, ".proto")
	if err != nil {
		return err
	}
	files, err := compile(ctx, root, names)
	if err != nil {
		return err
	}
	made := map[string]string{}
	for _, p := range plugins {
		if err := p.run(ctx, files, names, made); err != nil {
			return err
		}
	}
	if check {
		return compare(root, made)
	}
	return write(root, made)
}

// list returns the slash-separated names of the files below root that end in
// suffix, in lexical order.
func list(root, suffix string) ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
		return err
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no %s files below %s", suffix, root)
	}
	return names, err
}

// compile returns the descriptors of the named files and of what they import,
// every file after its imports, as the plugins demand.
func compile(ctx context.Context, root string, names []string) ([]*descriptorpb.FileDescriptorProto, error) {
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	linked, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	var files []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(f linker.File)
	add = func(f linker.File) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		imports := f.Imports()
		for i := range imports.Len() {
			add(f.FindImportByPath(imports.Get(i).Path()))
		}
		files = append(files, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range linked {
		add(f)
	}
	return files, nil
}

// run adds the files that p generates to made. The plugins are tools of the
// module in the working folder.
func (p plugin) run(ctx context.Context, files []*descriptorpb.FileDescriptorProto, names []string, made map[string]string) error {
	in, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: names, Parameter: &p.parameter, ProtoFile: files,
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", p.name)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if resp.Error != nil {
		return fmt.Errorf("%s: %s", p.name, resp.GetError())
	}
	for _, f := range resp.File {
		made[f.GetName()] = f.GetContent()
	}
	return nil
}

// write stores the generated files and removes those no longer generated.
func write(root string, made map[string]string) error {
	for name, content := range made {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	stale, err := stale(root, made)
	for _, name := range stale {
		err = errors.Join(err, os.Remove(filepath.Join(root, name)))
	}
	return err
}

// compare names every file that write would change.
func compare(root string, made map[string]string) error {
	stale, err := stale(root, made)
	for _, name := range stale {
		err = errors.Join(err, fmt.Errorf("%s is no longer generated", name))
	}
	for name, content := range made {
		old, readErr := os.ReadFile(filepath.Join(root, name))
		if readErr != nil || string(old) != content {
			err = errors.Join(err, fmt.Errorf("%s differs from its .proto file: run make generate", name))
		}
	}
	return err
}

func stale(root string, made map[string]string) ([]string, error) {
	names, err := list(root, ".pb.go")
	var old []string
	for _, name := range names {
		if _, ok := made[name]; !ok {
			old = append(old, name)
		}
	}
	if len(names) == 0 {
		err = nil // nothing was generated yet
	}
	return old, err
}
