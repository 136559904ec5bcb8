//go:build !unix

package cli

import "errors"

const canReplace = false

func execute(string) error {
	return errors.New("this system cannot replace a process by another program")
}
