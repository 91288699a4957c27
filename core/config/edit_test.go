package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/core/config"
)

// TestEditText checks that edits change their field and nothing else, in the layouts that people write.
func TestEditText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		edits      []config.Edit
		want       string
	}{
		{"a scalar", "# head\nmax_batch_size: 8 # of the model\n", []config.Edit{{Path: "max_batch_size", Value: "32"}}, "# head\nmax_batch_size: 32 # of the model\n"},
		{"a new scalar", "name: \"m\"", []config.Edit{{Path: "max_batch_size", Value: "4"}}, "name: \"m\"\nmax_batch_size: 4\n"},
		{"an empty text", "", []config.Edit{{Path: "max_batch_size", Value: "4"}}, "max_batch_size: 4\n"},
		{
			"an empty message", "dynamic_batching { }\n",
			[]config.Edit{{Path: "dynamic_batching.max_queue_delay_microseconds", Value: "500"}},
			"dynamic_batching { max_queue_delay_microseconds: 500 }\n",
		},
		{
			"a new message", "name: 'm'\n",
			[]config.Edit{{Path: "dynamic_batching.preferred_batch_size", Value: "[ 4, 8 ]"}},
			"name: 'm'\ndynamic_batching { preferred_batch_size: [ 4, 8 ] }\n",
		},
		{
			"several lines", "dynamic_batching {\n    # why\n    preserve_ordering: true\n}\n",
			[]config.Edit{{Path: "dynamic_batching.max_queue_delay_microseconds", Value: "5"}},
			"dynamic_batching {\n    # why\n    preserve_ordering: true\n    max_queue_delay_microseconds: 5\n}\n",
		},
		{
			"a list of messages", "instance_group [\n  {\n    count: 2\n    kind: KIND_CPU\n  }\n]\n",
			[]config.Edit{{Path: "instance_group[0].count", Value: "1"}},
			"instance_group [\n  {\n    count: 1\n    kind: KIND_CPU\n  }\n]\n",
		},
		{
			"a list that is removed", "max_batch_size: 2\ndynamic_batching {\n  preferred_batch_size: [ 1,\n 2 ] # old\n  max_queue_delay_microseconds: 5\n}\n",
			[]config.Edit{{Path: "dynamic_batching.preferred_batch_size"}, {Path: "dynamic_batching.max_queue_delay_microseconds"}},
			"max_batch_size: 2\ndynamic_batching {\n  # old\n}\n",
		},
		{
			"a parameter", "parameters { key: \"a\" value { string_value: \"1\" } }\nparameters [ { key: \"b\" value: { string_value: \"x\" \"y\" } } ]\n",
			[]config.Edit{{Path: "parameters.b", Value: "2"}, {Path: "parameters.a"}},
			"parameters [ { key: \"b\" value: { string_value: \"2\" } } ]\n",
		},
		{
			"a new parameter", "name: \"m\"\n",
			[]config.Edit{{Path: "parameters.intra_op_thread_count", Value: "1"}},
			"name: \"m\"\nparameters { key: \"intra_op_thread_count\" value { string_value: \"1\" } }\n",
		},
		{"braces in comments and texts", "# { [\nname: \"}{\" # }\nmax_batch_size:1", []config.Edit{{Path: "max_batch_size", Value: "2"}}, "# { [\nname: \"}{\" # }\nmax_batch_size: 2"},
		{"nothing to remove", "name: \"m\"\n", []config.Edit{{Path: "dynamic_batching"}, {Path: "parameters.a"}}, "name: \"m\"\n"},
	} {
		got, err := config.EditText([]byte(c.text), c.edits...)
		if diff := cmp.Diff(c.want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", c.name, err, diff)
		}
		if _, err := config.Parse("config.pbtxt", got); err != nil {
			t.Errorf("%s: the result is not valid: %v", c.name, err)
		}
	}
}

// TestEditTextRefuses checks that broken texts are refused, not changed.
func TestEditTextRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"}", "a {", "a: [ 1", "a [ {", "a", "{ }", strings.Repeat("a {", 1000)} {
		if got, err := config.EditText([]byte(text), config.Edit{Path: "max_batch_size", Value: "1"}); err == nil {
			t.Errorf("'%s' becomes '%s', expected an error", text, got)
		}
	}
}

// FuzzEditText checks that an edit of a valid configuration changes its field only, whatever the text looks like.
func FuzzEditText(f *testing.F) {
	for _, s := range []string{"max_batch_size: 3 dynamic_batching<preserve_ordering:true>", "name:'a'#x\nmax_batch_size:0x10,", "input [{name:\"}\"}] parameters{key:'max_batch_size'}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before, err := config.Parse("config.pbtxt", []byte(text))
		if err != nil {
			return
		}
		got, err := config.EditText([]byte(text), config.Edit{Path: "max_batch_size", Value: "77"})
		if err != nil {
			return
		}
		after, err := config.Parse("config.pbtxt", got)
		if err != nil {
			return // the caller sees that, too
		}
		before.MaxBatchSize = 77
		if diff := cmp.Diff(before, after, protocmp.Transform()); diff != "" {
			t.Errorf("text %q became %q:\n%s", text, got, diff)
		}
	})
}
