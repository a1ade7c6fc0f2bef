package components

// onOwnStack registers a resource on a goroutine of its own. The SDK for Go sends the call stack with each
// registration, and the engine keeps it in the state, which an update writes twice a step: two kilobytes a resource
// from within a run, a tenth of that from here.
func onOwnStack[R any](register func() (R, error)) (resource R, err error) {
	done := make(chan struct{})

	go func() {
		defer close(done)

		resource, err = register()
	}()

	<-done

	return resource, err
}
