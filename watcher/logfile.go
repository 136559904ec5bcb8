package main

import (
	"io"
	"os"
	"sync"
)

// maxLog bounds the log in bytes: some thousand lines, the watches of many upgrades. One
// older file of that size is kept as watcher.log.1.
const maxLog = 1 << 20

// logPerm lets the group read the log, for support. It holds no secrets.
const logPerm = 0o640

// boundedLog appends to a file and rotates it when it is full.
type boundedLog struct {
	mu   sync.Mutex
	path string
	file *os.File
	size int64
}

func openLog(path string) (io.WriteCloser, error) {
	l := &boundedLog{path: path}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *boundedLog) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, logPerm)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, fi.Size()
	return nil
}

// Write writes a line, which it never splits over two files. A log that cannot be rotated
// is removed, since it must stay bounded and must not stop the watch.
func (l *boundedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(line)) > maxLog && l.size > 0 {
		l.file.Close()
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			os.Remove(l.path)
		}
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	return n, err
}

func (l *boundedLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
