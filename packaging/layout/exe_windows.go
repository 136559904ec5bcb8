package layout

// exe ends the names of programs, and so of the links that start them: Windows
// starts nothing by a name without it.
const exe = ".exe"
