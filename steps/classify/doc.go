// Package classify holds the steps that process the scores of a classifier: top_k returns the best
// classes with their probabilities and labels; scores converts the scores of all classes to
// probabilities or returns the best class.
//
// For example, top_k with k 2 on the scores 0.5, 2, 1 gives values 0.629, 0.231 and indices 1, 2.
package classify
