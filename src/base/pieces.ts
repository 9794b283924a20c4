/** Memory of each piece of a body beside its bytes; a body that comes byte by byte takes a hundred times its size. */
export const PIECE_OVERHEAD = 512;

/** Maximum number of pieces of a body that wait for the receiver to read, however small they are. */
export const MAX_PIECES = 256;
