package main

import (
	"tutti"
	"tutti/backends"
	"tutti/backends/identity"
	"tutti/backends/native"
	"tutti/backends/onnx"
	"tutti/backends/openvino"
	"tutti/backends/python"
	"tutti/backends/pytorch"
	"tutti/backends/query"
	"tutti/backends/repeat"
	"tutti/backends/sequence"
	"tutti/backends/sim"
	"tutti/backends/square"
	"tutti/backends/tensorflow"
	"tutti/steps"
	"tutti/steps/classify"
	"tutti/steps/detect"
	"tutti/steps/embed"
	"tutti/steps/encode"
	"tutti/steps/image"
	"tutti/steps/image/draw"
	"tutti/steps/jsonvalue"
	"tutti/steps/normalize"
	"tutti/steps/pool"
	"tutti/steps/spans"
	"tutti/steps/stringop"
	"tutti/steps/tensorop"
	"tutti/steps/tokenize"
)

// stepFactories lists the native steps.
func stepFactories() []steps.Factory {
	return []steps.Factory{
		classify.NewFactory(),
		classify.NewScoresFactory(),
		detect.NewFactory(),
		embed.NewFactory(),
		encode.NewFactory(),
		image.NewFactory(),
		image.NewResizeFactory(),
		image.NewCropFactory(),
		draw.NewFactory(),
		jsonvalue.NewBuildFactory(),
		jsonvalue.NewExtractFactory(),
		normalize.NewFactory(),
		pool.NewFactory(),
		spans.NewAnswerFactory(),
		spans.NewTokenFactory(),
		stringop.NewFactory(),
		tensorop.NewConstantFactory(),
		tensorop.NewFactory(),
		tokenize.NewFactory(),
		tokenize.NewDetokenizeFactory(),
	}
}

// backendFactories lists the backends.
func backendFactories(registry *steps.Registry) []backends.Factory {
	list := []backends.Factory{
		identity.NewFactory(),
		native.NewFactory(registry),
		onnx.NewFactory(),
		openvino.NewFactory(),
		python.NewFactory(),
		pytorch.NewFactory(),
		pytorch.NewPackageFactory(),
		query.NewFactory(),
		repeat.NewFactory(),
		sequence.NewFactory(),
		square.NewFactory(),
		tensorflow.NewFactory(),
	}
	return append(list, sim.NewFactory(list...))
}

// components is what this program is built from.
func components() tutti.Components {
	return tutti.Components{Steps: stepFactories(), Backends: backendFactories}
}
