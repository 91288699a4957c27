package image

import (
	"maps"
	"slices"

	"github.com/tutti-server/tutti/steps"
)

const (
	imageNetMean = "0.485,0.456,0.406"
	imageNetStd  = "0.229,0.224,0.225"
)

// presets are the preprocessing of well-known models, as defaults of the other parameters.
// Those of torchvision work on Pillow images. Those of Keras are load_img, which samples the
// nearest pixel by default, and preprocess_input.
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

func presetParam() steps.Param {
	return steps.Param{
		Key: steps.PresetKey, Doc: "Preprocessing of a well-known model: defaults for the other parameters.", Default: "none",
		Values: append([]string{"none"}, slices.Sorted(maps.Keys(presets))...),
	}
}
