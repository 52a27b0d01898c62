namespace ingot {}
