package controller

// executor carries out decisions on one node: it is the node's decide.World, over the API server and the providers.
type executor struct {
	reads
	nodeWrites
	podWrites
	powerActions
}

func newExecutor(w *work) *executor {
	return &executor{reads{w}, nodeWrites{w}, podWrites{w}, powerActions{w}}
}
