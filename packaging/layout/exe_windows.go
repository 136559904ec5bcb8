package layout

// exe is the suffix of program names, and of the links to programs: Windows starts
// only files with this suffix.
const exe = ".exe"
