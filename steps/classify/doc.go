// Package classify holds the steps that read a classifier's scores: top_k, the best
// classes with their probabilities and labels, and scores, which turns the scores of
// all classes into probabilities or picks the best one.
package classify
