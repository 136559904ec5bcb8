package serverlayout

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Which process moves the pointer is decided here and nowhere else: one that may write to the
// pointer's folder does it itself, any other asks at the socket of root's unit. So a server whose
// installation belongs to its own user (a demo, a container, a person's own prefix) needs no unit, and
// one of root's installation cannot choose what root runs.

const (
	// maxRequest is longer than any request: a version has at most 100 characters or so. maxAnswer
	// is long enough for an error with some paths.
	maxRequest, maxAnswer = 256, 4 << 10

	// readTimeout bounds how long root's unit waits for a request that has been connected for.
	readTimeout = 5 * time.Second
	// askTimeout bounds a request. Root's unit starts, and runs a program that prints its version
	// within ten seconds. A round of the server's upgrade, which asks, has 30 s.
	askTimeout = 20 * time.Second
)

// Request is what a server asks root's unit: a line such as "switch 1.2.0".
type Request struct {
	// Move asks for the pointer to be moved, otherwise only whether it could be.
	Move    bool
	Version string
}

func (r Request) String() string {
	verb := "check"
	if r.Move {
		verb = "switch"
	}
	return verb + " " + r.Version
}

// ParseRequest parses a line. A version has no separator of paths, and is no "..".
func ParseRequest(line string) (Request, error) {
	verb, version, ok := strings.Cut(line, " ")
	if !ok || verb != "check" && verb != "switch" {
		return Request{}, fmt.Errorf("request is %q, want check or switch, and a version", line)
	}
	if _, err := manifest.ParseVersion(version); err != nil {
		return Request{}, err
	}
	return Request{verb == "switch", version}, nil
}

// Socket returns the path at which root's unit takes requests for this installation.
func (l *Layout) Socket() string {
	run := l.Run
	if run == "" {
		run = "/run"
	}
	return filepath.Join(run, "muster-switch"+strings.ReplaceAll(filepath.ToSlash(l.SysConfDir), "/", "-")+".sock")
}

// CheckMove returns why a server cannot make a version the current one. It changes nothing.
func (l *Layout) CheckMove(ctx context.Context, version string) error {
	if err := l.Check(ctx, version); err != nil {
		return err
	}
	return l.bySelfOrAsk(ctx, Request{Version: version}, func() error { return nil })
}

// Move makes a version the current one for a server, if it can follow the present one.
func (l *Layout) Move(ctx context.Context, version string) error {
	return l.bySelfOrAsk(ctx, Request{true, version}, func() error { return l.Switch(ctx, version, false) })
}

func (l *Layout) bySelfOrAsk(ctx context.Context, r Request, self func() error) error {
	err := disk.WriteCheck(l.Disk, op, filepath.Join(filepath.Dir(l.pointer()), ".muster-check"))
	switch {
	case err == nil:
		return self()
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS): // a service has a read-only view of it
		return l.ask(ctx, r)
	}
	return fmt.Errorf("the pointer to its version cannot be moved: %w", err)
}

// ask has root's unit answer a request.
func (l *Layout) ask(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := l.exchange(ctx, r)
	if err != nil {
		return fmt.Errorf("%s is root's, and %s does not answer (%w): run `sudo systemctl start %s`, and look at `journalctl --unit 'muster-switch@*'`; where there is no such unit, `sudo muster server unit --dir /etc/systemd/system` writes it, or stop the server and run `sudo muster server versions switch %s`", l.pointer(), l.Socket(), err, SwitchUnit, r.Version)
	}
	if refusal, no := strings.CutPrefix(answer, "no "); no {
		return fmt.Errorf("%s refuses to %s: %s", SwitchUnit, r, refusal)
	}
	if !r.Move {
		return nil
	}
	current, err := l.Current()
	if err == nil && current != r.Version {
		err = fmt.Errorf("%s has switched, and %s still leads to version %s: write the units of this installation again with `sudo muster server unit --dir /etc/systemd/system`", SwitchUnit, l.pointer(), current)
	}
	return err
}

// exchange sends a request, and returns the answer: "yes", or "no" and why.
func (l *Layout) exchange(ctx context.Context, r Request) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", l.Socket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(until); err != nil {
			return "", err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // only a reading that has ended can miss it
	if _, err := fmt.Fprintln(conn, r); err != nil {
		return "", err
	}
	answer, err := readLine(conn, maxAnswer)
	if err == nil && answer != "yes" && !strings.HasPrefix(answer, "no ") {
		err = fmt.Errorf("it answers %q", answer)
	}
	return answer, err
}

// readLine reads a line of at most most bytes.
func readLine(r io.Reader, most int64) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, most)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("no line of at most %d bytes: %w", most, io.ErrUnexpectedEOF)
	}
	return strings.TrimSuffix(line, "\n"), err
}

// Answer answers one request, in the process of root's unit. uid is the user of this process, who
// besides root may own what it runs. It returns the request, and why it was refused, for the log. An
// error means that nothing was asked, or that the answer could not be sent.
func (l *Layout) Answer(ctx context.Context, conn net.Conn, uid int) (r Request, refusal, err error) {
	if err := conn.SetDeadline(time.Now().Add(readTimeout)); err != nil {
		return r, nil, err
	}
	line, err := readLine(conn, maxRequest)
	if err != nil {
		return r, nil, err
	}
	r, refusal = ParseRequest(line)
	if refusal == nil {
		refusal = l.carryOut(ctx, r, uid)
	}
	answer := "yes"
	if refusal != nil {
		answer = "no " + strings.Join(strings.Fields(refusal.Error()), " ")
		answer = strings.ToValidUTF8(answer[:min(len(answer), maxAnswer-1)], "")
	}
	if err := conn.SetDeadline(time.Now().Add(readTimeout)); err != nil {
		return r, refusal, err
	}
	_, err = fmt.Fprintln(conn, answer)
	return r, refusal, err
}

func (l *Layout) carryOut(ctx context.Context, r Request, uid int) error {
	if err := l.accept(r.Version, uid); err != nil {
		return err
	}
	if !r.Move {
		return l.Check(ctx, r.Version)
	}
	return l.Switch(ctx, r.Version, false)
}

// accept returns why root may not run a version: it must be a folder below the prefix, and neither it
// nor the pointer may be changed by anybody but root (or uid) anywhere on the way.
func (l *Layout) accept(version string, uid int) error {
	home := l.Home(version)
	fi, err := l.Disk.Lstat(op, home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.notInstalled(version)
	case err != nil:
		return err
	case !fi.IsDir():
		return fmt.Errorf("%s is no folder, and a version is one", home)
	}
	for _, path := range []string{filepath.Dir(l.pointer()), l.Program(version)} {
		if err := disk.CheckOwned(l.Disk, op, path, uid); err != nil {
			return err
		}
	}
	return nil
}
