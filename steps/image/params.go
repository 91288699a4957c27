package image

import (
	"maps"
	"slices"

	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// outputParams are the parameters of every step of the package: how an image becomes the output.
func outputParams() []steps.Param {
	return []steps.Param{
		{
			Key: steps.PresetKey, Doc: "Preprocessing of a well-known model: defaults for the other parameters.", Default: "none",
			Values: append([]string{"none"}, slices.Sorted(maps.Keys(presets))...),
		},
		{Key: "width", Doc: "Width of the output in pixels.", Required: true, Sample: "224"},
		{Key: "height", Doc: "Height of the output in pixels.", Required: true, Sample: "224"},
		{Key: "fit", Doc: "How the image is brought to that size: stretched (exact); resized by its shorter side, then cropped or padded (short_side); " +
			"resized to fit inside, then padded (letterbox); only cropped or padded (none).", Default: "exact", Values: fitNames},
		{Key: "short_side", Doc: "Length of the shorter side with fit short_side; 0 is the smaller of width and height.", Default: "0"},
		{Key: "anchor", Doc: "Position of an image that is cropped or padded.", Default: "center", Values: []string{"center", "top_left"}},
		{Key: "fill", Doc: "Sample, 0 to 255, of pixels that the image does not cover: one number, or one per channel separated by commas.", Default: "0"},
		{Key: "resize", Doc: "Filter of the resize: Pillow's of that name (area is Pillow's box), or with cv_ an interpolation of " +
			"OpenCV's resize: cv_linear is INTER_LINEAR.", Default: "bilinear", Values: resize.FilterNames},
		{Key: "antialias", Doc: "Whether a filter of Pillow widens when the image shrinks, as in Pillow. With false, bilinear is " +
			"within 1 of OpenCV's INTER_LINEAR and PyTorch's interpolate; the other filters match neither. " +
			"The filters of OpenCV never widen.", Default: "true", Values: []string{"true", "false"}},
		{Key: "reducing_gap", Doc: "as in Pillow's resize, a number of at least 1: an image that shrinks by twice this number or more is first averaged over " +
			"boxes of whole pixels, down to this many times the output; none turns that off.", Default: "none"},
		{Key: "color", Doc: "Colour space of the output.", Default: "rgb", Values: raster.SpaceNames},
		{Key: "layout", Doc: "Order of the output's dimensions.", Default: "nchw", Values: []string{"nchw", "nhwc"}},
		{Key: "dtype", Doc: "Type of the output; uint8 gives the samples without normalisation.", Default: "fp32", Values: []string{"fp32", "fp16", "uint8"}},
		{Key: "scale", Doc: "Factor on the 8-bit samples, a number or a fraction.", Default: "1/255"},
		{Key: "mean", Doc: "Subtracted after scaling: one number, or one per channel of the output separated by commas.", Default: "0"},
		{Key: "std", Doc: "Divides after the mean is subtracted: one number, or one per channel separated by commas.", Default: "1"},
		{
			Key: "rounding", Doc: "Whether the normalised sample is rounded once, or after each of the three operations as in PyTorch.",
			Default: "once", Values: []string{"once", "each"},
		},
	}
}

// cropParams crop the image first, and add the output geometry.
func cropParams() []steps.Param {
	return []steps.Param{
		{Key: "crop", Doc: "Box that is cropped from the image before the resize: left, top, right and bottom in pixels, separated by commas. " +
			"The box is cut off at the edges of the image; a box outside of it fails the request.", Default: "none"},
		{Key: "geometry", Doc: "Adds the output geometry, which maps points of the source to the output.", Default: "false", Values: []string{"true", "false"}},
	}
}

const (
	imageNetMean = "0.485,0.456,0.406"
	imageNetStd  = "0.229,0.224,0.225"
)

// presets are the preprocessing of well-known models, as defaults of the other parameters. Those of torchvision work on
// Pillow images. Those of Keras are load_img, which samples the nearest pixel by default, and preprocess_input.
var presets = map[string]map[string]string{
	// torchvision ResNet50_Weights.IMAGENET1K_V1; most of its other classifiers, too.
	"resnet50": torchvision("256", "bilinear", imageNetMean, imageNetStd),
	// torchvision ResNet50_Weights.IMAGENET1K_V2.
	"resnet50_v2": torchvision("232", "bilinear", imageNetMean, imageNetStd),
	// torchvision ViT_B_16_Weights.IMAGENET1K_V1.
	"vit_b_16": torchvision("256", "bilinear", imageNetMean, imageNetStd),
	// transformers ViTImageProcessor, google/vit-base-patch16-224.
	"vit": {"width": "224", "height": "224", "mean": "0.5", "std": "0.5", "rounding": "each"},
	// OpenAI CLIP ViT-B/32, and transformers CLIPImageProcessor.
	"clip": torchvision("224", "bicubic", "0.48145466,0.4578275,0.40821073", "0.26862954,0.26130258,0.27577711"),
	// Ultralytics YOLO v5 to v11: LetterBox of 640 x 640, which resizes with OpenCV.
	"yolo": {
		"width": "640", "height": "640", "fit": "letterbox", "fill": "114", "resize": "cv_linear", "rounding": "each",
	},
	// keras.applications.resnet50.
	"resnet50_keras": {
		"width": "224", "height": "224", "resize": "nearest", "layout": "nhwc", "color": "bgr",
		"scale": "1", "mean": "103.939,116.779,123.68", "rounding": "each",
	},
	// keras.applications.mobilenet_v2, and resnet_v2.
	"mobilenet_v2_keras": {
		"width": "224", "height": "224", "resize": "nearest", "layout": "nhwc",
		"scale": "1/127.5", "mean": "1", "rounding": "each",
	},
}

// torchvision resizes by the shorter side and crops 224 x 224 from the centre.
func torchvision(short, filter, mean, std string) map[string]string {
	return map[string]string{
		"width": "224", "height": "224", "fit": "short_side", "short_side": short, "resize": filter,
		"mean": mean, "std": std, "rounding": "each",
	}
}
