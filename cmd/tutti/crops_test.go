package main

import (
	"os"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// TestCropsShareBatches checks that the crops of one picture, which differ in size, share batches in the example ocr: the direction classifier, whose
// input has one shape, executes one batch, and the recogniser one batch for each width.
func TestCropsShareBatches(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+examplesDir+"/ocr", "--backend-config", "onnxruntime,library-path="+requireRuntime(t))
	file, err := os.ReadFile(benchDir + "/testdata/ocr/lines-16.jpg")
	if err != nil {
		t.Fatal(err)
	}
	c := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	resp, err := c.Infer(t.Context(), &client.Request{Model: "ocr", Inputs: []client.Tensor{client.Text("IMAGE", []int64{1, 1}, file)}})
	if err != nil {
		t.Fatal(err)
	}
	counts, err := client.Values[int32](resp.Output("COUNT"))
	if err != nil || len(counts) != 1 || counts[0] != 16 {
		t.Fatalf("%v lines, %v, want 16", counts, err)
	}
	// ocr_crops gives six crops one width, so there are three widths at most. This is the first request, so no measured times have the batcher
	// divide a batch.
	for model, most := range map[string]uint64{"ocr_direction": 1, "ocr_recogniser": 3} {
		list, err := c.Statistics(t.Context(), model)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if s := &list[0]; s.InferenceCount != 16 || s.ExecutionCount > most {
			t.Errorf("'%s' executed %d rows in %d batches, want 16 in at most %d", model, s.InferenceCount, s.ExecutionCount, most)
		}
	}
}
