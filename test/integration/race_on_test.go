//go:build race

package integration

// raceDetector: the children are built as this test was.
const raceDetector = true
