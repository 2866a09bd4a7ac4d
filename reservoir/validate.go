package reservoir

// Validate returns every fault of c that New would refuse it for, or nil. An
// owner that has settings of its own can so report all faults together.
func (c Config[C]) Validate() error {
	_, err := c.resolve()
	return err
}
