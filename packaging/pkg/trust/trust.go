// Package trust is what package tuf and those who ask it have in common: the question whether
// an archive may be installed ([Authority]), its answer ([Expectation]), and its errors. A
// publisher signs what hosts may install, every host pins the publishers' root, and the server
// only stores what they have signed: whoever takes over the server cannot ship code.
package trust

import "errors"

var (
	// ErrNoPublisher is returned when the host trusts nobody, so that nothing can be
	// installed.
	ErrNoPublisher = errors.New("no publisher is trusted")
	// ErrUntrusted is what an error is that says: the publishers have not signed this.
	ErrUntrusted = errors.New("it is not what trusted publishers have signed")
	// ErrTransient is what an error is that a later try may not meet, without anybody's doing.
	ErrTransient = errors.New("may be valid later")

	// ErrNoPassword is returned when a key file cannot be written or read
	// without a password and none was given.
	ErrNoPassword = errors.New("a password is needed")
	// ErrWrongPassword is returned when a key file cannot be decrypted.
	ErrWrongPassword = errors.New("the password is wrong, or the key file is damaged")
)

// Statement is what trusted publishers say about an archive.
type Statement struct {
	// KeyID lists the signers' keys, separated by commas, each as 16 hexadecimal digits.
	KeyID    string `json:"key_id"`
	FileName string `json:"file_name"`
	// Comment names the signed files that describe the archive.
	Comment string `json:"comment"`
}
